#include "launcher/report/trace_json.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace troupe {
namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// The two threads of the launcher's process share a row.
int process_number(const ProcessTelemetry& process) {
  switch (process.role) {
    case ProcessRole::driver:
      return 1;
    case ProcessRole::executor:
      return 10 + process.index;
    case ProcessRole::worker:
      return 10'000 + process.index;
  }
  return 0;
}

std::string title(const ProcessTelemetry& process) {
  if (process.role == ProcessRole::driver) return "launcher";
  if (process.place.empty()) return process.process;
  return fmt::format("{} ({})", process.process, process.place);
}

std::string_view thread_title(const ProcessTelemetry& process) {
  switch (process.role) {
    case ProcessRole::driver:
      return process.process == "launcher" ? "input and output" : "driver";
    case ProcessRole::executor:
      return "step loop";
    case ProcessRole::worker:
      return "steps";
  }
  return "";
}

/// Sorts by beginning; of spans that begin together the enclosing one comes first.
std::vector<Span> by_beginning(std::vector<Span> spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  });
  return spans;
}

}  // namespace

std::string trace_json(const std::vector<ProcessTelemetry>& processes, std::int64_t origin_ns,
                       const std::vector<std::int64_t>& clock_offsets_ns) {
  const auto offset = [&](std::size_t i) {
    return i < clock_offsets_ns.size() ? clock_offsets_ns[i] : 0;
  };
  std::int64_t earliest_ns = std::numeric_limits<std::int64_t>::min();
  for (std::size_t i = 0; i < processes.size(); ++i) {
    const auto& [spans, all] = processes[i].kept;
    if (all || spans.empty()) continue;
    earliest_ns = std::max(earliest_ns, spans.front().begin_ns + offset(i));
  }

  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  auto out = std::back_inserter(text);
  const char* separator = "\n";
  const auto metadata = [&](std::string_view what, int pid, std::size_t tid, const auto& value) {
    fmt::format_to(out, R"({}{{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{{}}}}})", separator,
                   what, pid, tid, value);
    separator = ",\n";
  };
  for (std::size_t i = 0; i < processes.size(); ++i) {
    const ProcessTelemetry& process = processes[i];
    const int pid = process_number(process);
    const std::size_t tid = i + 1;
    metadata("process_name", pid, tid, fmt::format(R"("name":{})", quoted(title(process))));
    metadata("process_sort_index", pid, tid, fmt::format(R"("sort_index":{})", pid));
    metadata("thread_name", pid, tid, fmt::format(R"("name":"{}")", thread_title(process)));
    for (const Span& span : by_beginning(process.kept.spans)) {
      const std::int64_t begin_ns = span.begin_ns + offset(i);
      if (begin_ns < earliest_ns) continue;
      fmt::format_to(
          out, R"({}{{"name":"{}","cat":"{}","ph":"X","ts":{:.3f},"dur":{:.3f},"pid":{},"tid":{})",
          separator, describe(span.kind), name(span.kind),
          static_cast<double>(begin_ns - origin_ns) * 1e-3,
          static_cast<double>(span.end_ns - span.begin_ns) * 1e-3, pid, tid);
      if (process.role != ProcessRole::driver) {
        fmt::format_to(out, R"(,"args":{{"step":{}}})", span.step);
      }
      text += '}';
    }
  }
  text += "\n]}\n";
  return text;
}

}  // namespace troupe
