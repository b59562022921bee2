#pragma once

#include <chrono>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "actors/engine/report.hpp"
#include "actors/executor/answer.hpp"
#include "actors/executor/executor.hpp"
#include "actors/scheduler/scheduler.hpp"
#include "actors/step/step_codec.hpp"
#include "models/text/tokenizer.hpp"
#include "runtime/actor/actor_handle.hpp"
#include "runtime/channel/channel.hpp"

namespace troupe {

/// The executor's loop: plan, send, receive, apply, report. Runs on one thread; interrupt() may
/// come from another.
class StepLoop {
 public:
  /// `inbox` and `tokenizer` (null: answers have no text) outlive the loop.
  StepLoop(Scheduler scheduler, Channel channel, ExecutorInbox& inbox, std::int32_t replica,
           const Tokenizer* tokenizer, ActorHandle<Driver> driver);

  /// Until inbox.stopping: then ok. Errors: a worker that does not answer, or answers wrongly; a
  /// driver that takes no reports.
  Result<void> run();

  /// Makes a wait for the workers end; set inbox.stopping first.
  void interrupt() { channel_.interrupt(); }

 private:
  using Clock = std::chrono::steady_clock;

  /// Takes what was submitted; waits for it if nothing else is to be done. False: stopping.
  bool take_inbox();
  void admit(SequenceSpec spec);
  void drop_waiting();
  Result<void> run_step(const StepPlan& plan);
  void take_updates(std::vector<SequenceUpdate> updates);
  /// Errors: a report that the driver could not be given; its answers would be lost.
  Result<void> report_if_due();
  void update_stats();

  Scheduler scheduler_;
  Channel channel_;
  ExecutorInbox& inbox_;
  std::int32_t replica_;
  const Tokenizer* tokenizer_;
  ActorHandle<Driver> driver_;
  StepEncoder encoder_;
  std::unordered_map<std::uint64_t, Answer> answers_;
  EngineReport report_;
  EngineStats stats_;
  bool first_token_reported_ = false;
  bool draining_ = false;
  Clock::time_point last_report_{};
};

}  // namespace troupe
