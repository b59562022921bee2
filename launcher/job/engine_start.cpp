#include "launcher/job/engine_start.hpp"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "launcher/job/node_join.hpp"
#include "launcher/job/node_preflight.hpp"
#include "runtime/base/format_bytes.hpp"
#include "runtime/base/log.hpp"

namespace troupe {

std::string copying_phase(std::uint64_t copied, std::uint64_t total, std::size_t copies) {
  if (copies == 0) return "looking for copies of the checkpoint";
  return fmt::format("copying the checkpoint {} time{}: {} of {}", copies, copies == 1 ? "" : "s",
                     format_bytes(copied), format_bytes(total));
}

std::string loading_phase(std::string_view model, const LoadingState& loading) {
  if (loading.total_bytes == 0) return fmt::format("loading {}", model);
  return fmt::format("loading {}: {} of {}", model, format_bytes(loading.bytes),
                     format_bytes(loading.total_bytes));
}

EngineStart::EngineStart(const JobPlan& plan, const JobFiles& files, const RunOptions& options,
                         StopSignals& signals, View view)
    : plan_(plan),
      files_(files),
      options_(options),
      signals_(signals),
      view_(std::move(view)),
      nodes_(plan.config, [&progress = view_.progress](const std::string& line) {
        log::info("{}", line);
        progress.tell("launcher: " + line);
      }) {}

Result<std::unique_ptr<EngineSession>> EngineStart::begin() {
  JobPlan plan = plan_;
  // The resumed job's time, if one is resumed, so that its prompts are the same.
  plan.engine.created = files_.journal.identity().created;
  std::string& phase = view_.state.phase;
  auto session =
      EngineSession::start(plan, files_.folder, options_.log_level,
                           {.while_waiting =
                                [&](const ClusterWait& wait) {
                                  phase = nodes_.update(wait);
                                  signals_.on_pause(wait.suspend, wait.resume);
                                  return view_.keep_going();
                                },
                            .keep_going = view_.keep_going,
                            .on_staging =
                                [&](std::uint64_t copied, std::uint64_t total, std::size_t copies) {
                                  phase = copying_phase(copied, total, copies);
                                  return view_.keep_going();
                                },
                            .on_preflight =
                                [this](const PreflightReport& report) {
                                  view_.recorder.set_hosts(job_hosts(plan_, report));
                                  view_.teller.tell_preflight(report);
                                }});
  signals_.on_pause({}, {});
  if (!session.ok()) return session;
  Cluster& cluster = (*session)->cluster();
  cluster.on_join([&cluster, &plan = plan_, command = join_command(),
                   keep_going = (*session)->keep_going()](const JoinRequest& request) {
    return join_nodes(cluster, plan, command, request, keep_going);
  });
  return session;
}

Result<void> EngineStart::finish(EngineSession& session) {
  std::string& phase = view_.state.phase;
  TROUPE_TRY(const EngineInfo info, session.wait_until_ready([&] {
    phase = loading_phase(plan_.config.model.path, session.loading());
    return view_.keep_going();
  }));
  log::info("{} KV blocks, {} bytes of KV, {} bytes of weights", info.kv_cache_blocks,
            info.kv_bytes, info.weight_bytes);
  phase.clear();
  return {};
}

}  // namespace troupe
