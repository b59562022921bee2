#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/api/request.hpp"
#include "actors/api/widened_layer.hpp"
#include "actors/scheduler/lost_work.hpp"
#include "actors/scheduler/scheduler_counters.hpp"
#include "actors/scheduler/sequence_update.hpp"
#include "actors/telemetry/step_record.hpp"

namespace troupe {

/// How busy an engine is. Token counts are from its start.
struct EngineStats {
  std::uint64_t running = 0;        ///< requests that hold KV blocks
  std::uint64_t waiting = 0;        ///< not yet admitted
  std::uint64_t output_tokens = 0;  ///< generated
  std::uint64_t steps = 0;
  std::uint64_t step_us = 0;  ///< from sending a plan to its result, over all steps
  /// Time in steps on the answering worker. It runs one at a time, so overlapping steps do not
  /// count twice: the rest of active_us is time outside the model.
  std::uint64_t model_us = 0;
  std::uint64_t active_us = 0;  ///< time with any live request
  /// Positions whose keys and values decode steps did not read again, summed over rows: a prefix
  /// that sequences share was read once for several (cascade attention).
  std::uint64_t shared_positions = 0;
  double kv_use = 0.0;          ///< share of the KV blocks in use, 0..1
  SchedulerCounters scheduler;  ///< sums over all replicas

  /// Adds another domain's; kv_use too, which the caller must divide.
  void add(const EngineStats& other) {
    running += other.running;
    waiting += other.waiting;
    output_tokens += other.output_tokens;
    steps += other.steps;
    step_us += other.step_us;
    model_us += other.model_us;
    active_us += other.active_us;
    shared_positions += other.shared_positions;
    kv_use += other.kv_use;
    scheduler.add(other.scheduler);
  }

  template <class Archive>
  void fields(Archive& archive) {
    archive(running, waiting, output_tokens, steps, step_us, model_us, active_us, shared_positions,
            kv_use, scheduler);
  }
};

/// The first step of an epoch.
struct FirstStep {
  std::uint32_t epoch = 0;
  std::uint64_t wait_us = 0;    ///< since the executor was started in that epoch
  std::uint64_t sequences = 0;  ///< that lost their KV and are computed anew
  LostWork lost = {};           ///< theirs
  /// Tokens that the requests had which the executor was made to forget
  /// (ExecutorStart::taken_back).
  std::uint64_t forgotten_tokens = 0;

  template <class Archive>
  void fields(Archive& archive) {
    archive(epoch, wait_us, sequences, lost, forgotten_tokens);
  }
};

/// A step that takes longer than it should.
struct OverdueStep {
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;
  double seconds = 0;  ///< so far

  template <class Archive>
  void fields(Archive& archive) {
    archive(epoch, step, seconds);
  }
};

/// The report that an executor sends to the driver from time to time.
struct EngineReport {
  std::int32_t domain = 0;
  std::uint64_t executor = 0;     ///< the actor's id
  std::uint32_t incarnation = 0;  ///< of the executor, whose figures begin anew with it
  std::uint32_t epoch = 0;        ///< in which its steps are
  std::vector<Completion> completions;
  std::vector<std::uint64_t> dropped;  ///< requests that drain() ended before they had begun
  EngineStats stats;
  std::vector<StepRecord> steps;  ///< of the domain, since its last report
  bool first_token = false;       ///< the engine has generated its first token
  /// After a recovery, once: its first step is done, or none is needed.
  std::optional<FirstStep> resumed = {};
  /// Tokens that unfinished requests have generated since the last such report (RequestProgress),
  /// so that another executor can go on with them (ExecutorSpec::keeps_progress).
  std::vector<SequenceUpdate> progress = {};
  /// The oldest step in flight is not answered in time; told again as long as it is not.
  std::optional<OverdueStep> overdue = {};
  std::vector<WidenedLayer> widened = {};  ///< since the last report
  /// The share of the memory for unanswered requests that is in use (RequestLedger), of the domain
  /// with the largest; filled in by the driver.
  double kept_share = 0.0;

  template <class Archive>
  void fields(Archive& archive) {
    archive(domain, executor, incarnation, epoch, completions, dropped, stats, steps, first_token,
            resumed, progress, overdue, widened, kept_share);
  }
};

}  // namespace troupe
