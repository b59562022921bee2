#include "runtime/actor/forwarded_logs.hpp"

#include "runtime/base/terminal_text.hpp"

namespace troupe {
namespace {

/// Processes that a repeated line is counted for.
constexpr std::size_t max_sources = 100;

}  // namespace

std::string ForwardedLogs::take(const std::string& node, const LogLines& lines,
                                Clock::time_point now) {
  std::string shown = take_repeated(now);
  const std::string source = fmt::format("({} pid={}, {})", lines.process, lines.pid, node);
  if (lines.dropped > 0) {
    shown += printable(fmt::format("{} {} lines are left out, as there were too many", source,
                                   lines.dropped)) +
             "\n";
  }
  std::string_view rest = lines.lines;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.empty()) continue;
    const auto known = seen_.find(line);
    if (known != seen_.end()) {
      ++known->second.times;
      known->second.last_source = source;
      if (known->second.sources.size() < max_sources) known->second.sources.insert(source);
      continue;
    }
    shown += printable(fmt::format("{} {}", source, line)) + "\n";
    if (seen_.size() >= max_lines) continue;
    seen_.emplace(std::string(line), Seen{now + window, 0, {source}, source});
    order_.emplace_back(line);
  }
  return shown;
}

std::string ForwardedLogs::take_repeated(Clock::time_point now, bool is_end) {
  std::string shown;
  while (!order_.empty()) {
    const auto found = seen_.find(order_.front());
    if (!is_end && found->second.until > now) break;
    const Seen& seen = found->second;
    if (seen.times > 0) {
      shown += printable(fmt::format("{} {} [repeated {}x by {} process{}]", seen.last_source,
                                     found->first, seen.times, seen.sources.size(),
                                     seen.sources.size() == 1 ? "" : "es")) +
               "\n";
    }
    seen_.erase(found);
    order_.pop_front();
  }
  return shown;
}

}  // namespace troupe
