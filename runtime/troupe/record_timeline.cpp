#include <cerrno>
#include <cstdio>
#include <thread>

#include "runtime/base/terminal_text.hpp"
#include "runtime/troupe/answer.hpp"
#include "runtime/troupe/commands.hpp"
#include "runtime/troupe/trace_json.hpp"

namespace troupe {
namespace {

/// Until the recording is ended from here.
constexpr std::chrono::seconds more_time{30};

Result<void> write_file(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return fail_errno(errno, fmt::format("cannot write {}", path));
  const bool is_written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int why = errno;
  if (std::fclose(file) == 0 && is_written) return {};
  return fail_errno(why, fmt::format("cannot write {}", path));
}

}  // namespace

Result<int> record_timeline(const ReachedCluster& cluster, const StateCommand& command) {
  using Step = AskTimeline::Step;
  StateClient& client = *cluster.client;
  TROUPE_CHECK(write_file(command.output, ""));  // before the user waits for it
  const std::chrono::milliseconds limit = command.seconds + more_time;
  const AskTimeline start{.step = Step::start, .limit_ms = limit.count()};
  TROUPE_TRY(const auto started, client.get<TimelineReply>(start, 2 * answer_limit));
  std::fprintf(stderr, "recording %zu processes for %lld s\n", started.places.size(),
               static_cast<long long>(command.seconds.count()));
  (void)client.wait_until_closed(command.seconds);
  TROUPE_TRY(const auto stopped,
             client.get<TimelineReply>(AskTimeline{.step = Step::stop}, answer_limit));
  (void)stopped;
  std::vector<ProcessTrace> processes;
  std::size_t events = 0, lost = 0;
  for (const TimelinePlace& place : started.places) {
    const AskTimeline take{.step = Step::take, .node = place.node, .process = place.process};
    auto taken = client.get<TimelineReply>(take, answer_limit);
    if (!taken.ok() && taken.error().code == ErrorCode::peer_died) return taken.error();
    if (!taken.ok()) {
      ++lost;
      continue;
    }
    events += taken->timeline.events.size();
    processes.push_back({place, std::move(taken->timeline)});
  }
  TROUPE_CHECK(write_file(command.output, trace_json(processes)));
  if (command.json) {
    print_json(cluster.found.file, {{"output", json_of(command.output)},
                                    {"processes", json_of(processes.size())},
                                    {"silent", json_of(lost)},
                                    {"events", json_of(events)}});
    return 0;
  }
  std::string said =
      fmt::format("{}: {} events of {} processes", command.output, events, processes.size());
  if (lost > 0) said += fmt::format("; {} have ended or do not answer", lost);
  print(paragraph(said + ". Open it in https://ui.perfetto.dev", terminal_columns()));
  return 0;
}

}  // namespace troupe
