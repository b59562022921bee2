#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "actors/telemetry/process_telemetry.hpp"
#include "actors/telemetry/span_recorder.hpp"
#include "actors/worker/model_runner.hpp"
#include "actors/worker/phase_times.hpp"
#include "actors/worker/startup/worker_groups.hpp"
#include "actors/worker/worker_spec.hpp"
#include "models/model/model.hpp"
#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/methods.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

class StepPlane;

/// The actor that runs one rank's part of the model. The driver loads and starts it; from then on a
/// thread of its own takes plans from the step plane.
///
/// A step that fails ends the actor, and the reason goes to whoever watches it.
class Worker {
 public:
  Worker(ActorContext& context, WorkerSpec spec);
  ~Worker();

  /// Opens its groups and says where the other members reach it.
  Result<GroupAddresses> announce();

  /// Joins its groups and reads its slices of the checkpoint.
  Result<WorkerReport> load(const GroupPeers& peers);

  /// Allocates the KV cache, and host memory for `swap_blocks` of its blocks, warms a GPU up and
  /// begins to serve steps. Says what the executor, and no other process, must connect to.
  Result<StepAddresses> start(std::int64_t kv_blocks, std::int64_t swap_blocks, int executor_pid);

  /// How it has spent its time. With `all`, spans and counts too, as they are when the step that
  /// runs is over, or without the counts if it is not over soon.
  ProcessTelemetry telemetry(bool all);

  using Arguments = troupe::Arguments<WorkerSpec>;
  using Methods =
      troupe::Methods<&Worker::announce, &Worker::load, &Worker::start, &Worker::telemetry>;
  static constexpr std::string_view actor_type = "Worker";

 private:
  std::string place() const;
  /// Tells `load_progress` how far the weights are.
  void tell(const LoadedWeights& loaded) const;
  /// Device memory that start() takes besides the KV cache, about.
  std::uint64_t later_bytes() const;
  /// The error of a load or a start; where memory ran out, with this rank's place and what has it.
  /// `before`: the device's memory before this worker took any.
  Error not_loaded(Error error, const Checkpoint& checkpoint, const DeviceMemory& before) const;
  Error not_started(Error error, std::int64_t kv_blocks) const;
  /// The KV cache and what runs steps over it.
  Result<void> allocate_steps(std::int64_t kv_blocks, PhaseTimes& times);
  /// Which of the node's GPUs is this rank's; 0 on CPUs.
  Result<int> find_device() const;
  void serve();
  /// Begins a step or finishes one: a step is answered as soon as it is ready, and meanwhile the
  /// next one is begun.
  Result<void> serve_step();
  /// None where none came in time.
  Result<std::optional<StepPlan>> next_plan();
  Result<void> finish_step();
  bool is_ready();
  ExpertRows expert_rows() const;

  ActorContext& context_;
  WorkerSpec spec_;
  ModelConfig config_;  ///< from announce() on
  SpanRecorder recorder_;
  std::int64_t since_ns_ = 0;    ///< when start() was done
  std::uint64_t step_ = 0;       ///< that was begun or finished last
  std::timed_mutex step_mutex_;  ///< held while the runner or its device is asked for something
  std::unique_ptr<WorkerGroups> groups_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Drafter> drafter_;  ///< of the rank that answers, if there is a draft model
  std::unique_ptr<ModelRunner> runner_;
  /// What warm_up counted, which is not the job's.
  std::uint64_t uncounted_rows_ = 0;
  std::vector<std::int64_t> uncounted_expert_rows_;
  std::unique_ptr<StepPlane> step_plane_;
  std::atomic<bool> stopping_ = false;
  std::thread loop_;
};

}  // namespace troupe
