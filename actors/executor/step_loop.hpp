#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "actors/api/report.hpp"
#include "actors/api/report_sink.hpp"
#include "actors/executor/executor.hpp"
#include "actors/executor/request_tracker.hpp"
#include "actors/executor/step_limit.hpp"
#include "actors/executor/widened_layers.hpp"
#include "actors/scheduler/step_domain.hpp"
#include "actors/scheduler/under_way.hpp"
#include "actors/step/step_codec.hpp"
#include "actors/telemetry/process_telemetry.hpp"
#include "actors/telemetry/span_recorder.hpp"
#include "actors/telemetry/step_record.hpp"
#include "models/text/tokenizer.hpp"
#include "runtime/actor/actor_handle.hpp"
#include "runtime/call/actor_address.hpp"
#include "runtime/channel/channel.hpp"

namespace troupe {

/// The channels to one replica's workers and back.
struct StepChannels {
  std::vector<Channel> plans;       ///< to a worker of each node
  std::optional<Channel> results;   ///< if the worker that answers takes no plans
  std::size_t answering_plans = 0;  ///< else: which of `plans` it is

  Channel& answering() { return results ? *results : plans[answering_plans]; }
};

/// The executor's loop: plan and send as many steps as may be in flight, receive the oldest one's
/// results, apply, report. Runs on one thread; interrupt() and telemetry() are callable from
/// others. If workers are lost, it is paused and restarted on other channels; then it goes on with
/// its requests.
class StepLoop {
 public:
  /// `inbox` and `tokenizer` (null: answers have no text) outlive the loop. `channels` has one
  /// entry for each replica of the domain; `spec` and `executor` are the executor's.
  StepLoop(StepDomain domain, std::vector<StepChannels> channels, ExecutorInbox& inbox,
           const ExecutorSpec& spec, const ActorAddress& executor, const Tokenizer* tokenizer);

  /// Runs until inbox.stopping or inbox.pausing: then ok. All that is answered has been reported.
  /// May be called again after restart(). Errors: a worker that does not answer, or answers
  /// wrongly; a report that the sink did not take, with whose answers a new executor begins anew.
  Result<void> run();

  /// Forgets the steps in flight and what the workers hold (Scheduler::restart), and goes on over
  /// these channels in `epoch`. Forgets the requests `taken_back` as well. Not while run() runs.
  void restart(std::vector<StepChannels> channels, std::uint32_t epoch,
               std::span<const std::uint64_t> taken_back);

  /// The requests in the steps in flight. Not while run() runs.
  std::vector<UnderWay> under_way() const { return domain_.under_way(); }

  /// Goes on in `epoch` with the requests of a former executor, which are in the inbox. Before
  /// run().
  void take_over(std::uint32_t epoch);

  /// The clock of deadlines.
  static std::int64_t now_us();

  /// Ends a wait for the workers; set inbox.stopping or inbox.pausing first.
  void interrupt();

  /// How the loop has spent its time; with `all` also spans and inter-token times.
  ProcessTelemetry telemetry(bool all) const;

 private:
  using Clock = std::chrono::steady_clock;

  /// Takes submitted requests; waits for some if there is nothing else to do. False: stopping.
  bool take_inbox();
  /// Adds a request to its scheduler; answers one that the scheduler refuses.
  void start(std::size_t replica, PreparedRequest request, std::vector<SequenceUpdate> progress);
  /// Counts what a request that goes on here had elsewhere.
  void note_resumed(const SequenceGroupSpec& spec);
  /// Errors: the scheduler and the answer contradict each other.
  Result<void> carry_out(RequestTracker::Outcome outcome);
  void drop_waiting();
  Result<void> send_plans();
  /// Has the plans of a step name the layers that are to fall back.
  void add_widened_layers(std::vector<StepPlan>& plans);
  Result<void> take_results();
  /// Receives the answer to the oldest step in flight; reports it if it is overdue.
  Result<Message> receive_answer(Channel& channel);
  Result<void> take_updates(std::vector<SequenceUpdate> updates);
  void note_step(std::int64_t planned_us, std::int64_t answered_us, std::uint64_t model_us,
                 std::uint64_t sequences);
  /// Errors: those of check_reports().
  Result<void> report_if_due();
  Result<void> report_now();
  /// Looks at the answers to reports. Errors: one was not taken; what it said would be lost.
  Result<void> check_reports();
  /// While there is nothing to do, waits for the answers to all reports. Errors: as
  /// check_reports().
  Result<void> await_reports();
  /// True if take_inbox() would wait.
  bool is_idle();
  /// The first step since restart() is done, or there is nothing to do.
  void note_first_step();
  void update_stats();

  StepDomain domain_;
  std::vector<StepChannels> channels_;
  ExecutorInbox& inbox_;
  std::int32_t index_;
  ActorId executor_;
  std::uint32_t incarnation_;
  bool keeps_progress_;
  RequestTracker answers_;
  ActorHandle<ReportSink> reports_;
  StepEncoder encoder_;
  /// A step in flight.
  struct SentStep {
    std::uint64_t step = 0;
    std::int64_t at_us = 0;
    std::uint64_t work = 0;  ///< StepLimit::work_of, the most of a replica
  };
  std::deque<SentStep> sent_;  ///< oldest first
  StepLimit limit_;
  WidenedLayers widened_;
  std::uint32_t epoch_ = 0;
  EngineReport report_;
  std::deque<Future<void>> unanswered_;  ///< calls that have sent reports, oldest first
  EngineStats stats_;
  StepBatch step_records_;
  SchedulerCounters counted_;  ///< counters when the last step was recorded
  std::uint64_t counted_output_tokens_ = 0;
  std::int64_t began_us_ = 0;  ///< when the loop began
  std::int64_t idle_us_ = 0;   ///< idle time since then
  SpanRecorder recorder_;
  mutable std::mutex answers_mutex_;  ///< guards the parts of answers_ that telemetry() reads
  bool first_token_reported_ = false;
  bool draining_ = false;
  std::optional<FirstStep> resuming_;  ///< from restart() to the first step
  std::int64_t restarted_us_ = 0;
  Clock::time_point last_report_{};
  Clock::time_point last_progress_{};
};

}  // namespace troupe
