#include "runtime/node/printed_lines.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

bool is_log_line(std::string_view line) {
  constexpr std::string_view form = "0000-00-00T00:00:00.000000Z ";
  return line.size() > form.size() &&
         std::ranges::equal(line.substr(0, form.size()), form, [](char is, char wanted) {
           return wanted == '0' ? is >= '0' && is <= '9' : is == wanted;
         });
}

std::optional<LogLines> PrintedLines::take(std::string_view lines, Clock::time_point now) {
  if (now - second_ >= std::chrono::seconds(1)) {
    second_ = now;
    lines_ = bytes_ = 0;
  }
  LogLines taken{.lines = {}, .dropped = std::exchange(dropped_, 0)};
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n');
    const std::string_view line = lines.substr(0, end == lines.npos ? end : end + 1);
    lines.remove_prefix(line.size());
    if (is_log_line(line)) continue;
    if (lines_ >= lines_per_second || bytes_ + line.size() > bytes_per_second) {
      ++dropped_;
      continue;
    }
    ++lines_;
    bytes_ += line.size();
    taken.lines += line;
  }
  if (!taken.lines.empty()) return taken;
  dropped_ += taken.dropped;
  return std::nullopt;
}

}  // namespace troupe
