#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "actors/step/step_address.hpp"
#include "actors/telemetry/process_telemetry.hpp"
#include "actors/telemetry/span_recorder.hpp"
#include "actors/worker/model_runner.hpp"
#include "actors/worker/phase_times.hpp"
#include "actors/worker/startup/worker_groups.hpp"
#include "actors/worker/worker_spec.hpp"
#include "models/model/model.hpp"
#include "parallel/group/group_member.hpp"
#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/methods.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

class StepPlane;

/// The actor that runs one rank's part of the model. The driver loads and starts it; from then on
/// its own thread takes plans from the step plane.
///
/// A step that fails ends the actor, and its watchers get the reason; but if it fails because
/// another rank is gone, the worker waits to be asked to leave, and ends only if it is not.
///
/// States: new -> load() -> loaded -> start() -> serving -> leave() -> loaded. After leave() the
/// group forms anew, and load() and start() are called as on a new worker.
class Worker final : public GroupMember {
 public:
  Worker(ActorContext& context, WorkerSpec spec);
  ~Worker() override;

  /// Reads its slices of the checkpoint, once the workers have formed their group. A worker that
  /// has them already only takes the group's new communicators; its report is the former one.
  /// `nodes`: of each rank, as WorkerSpec::nodes; a lost node's ranks may have moved.
  Result<WorkerReport> load(std::vector<std::string> nodes);

  /// Allocates the KV cache, and host memory for `swap_blocks` of its blocks, warms up a GPU and
  /// begins to serve steps of the group's epoch. Returns the addresses for the executor; no other
  /// process may connect. After leave(), the numbers must be as before.
  Result<StartedWorker> start(std::int64_t kv_blocks, std::int64_t swap_blocks,
                              const ExecutorPlace& executor);

  /// Ends the group's epoch here, the step that runs and the step plane. Keeps the weights and the
  /// memory of the KV cache, whose contents are void. Does nothing on a worker that does not serve.
  /// It waits for what the step computes until its next collective. A worker whose GPU has failed
  /// ends.
  void leave();

  /// How it has spent its time. With `all` also spans and counts, taken when the running step ends,
  /// or without the counts if it does not end soon.
  ProcessTelemetry telemetry(bool all);

  /// Where its step is; does not wait for it.
  RankState state();

  using Arguments = troupe::Arguments<WorkerSpec>;
  using Methods = GroupMember::Methods::plus<&Worker::load, &Worker::start, &Worker::leave,
                                             &Worker::telemetry, &Worker::state>;
  static constexpr std::string_view actor_type = "Worker";
  /// The name of the thread that takes steps, in /proc/PID/task/TID/comm.
  static constexpr const char* step_thread_name = "steps";

 private:
  Result<std::vector<CommunicatorSpec>> communicators() override;
  /// It serves still if an attempt to recover has failed after its start().
  void before_leaving() override { leave(); }
  /// abort_group(), and the groups of GPUs.
  void abort_with_devices();
  /// After abort_with_devices(): waits for the end of what has been enqueued, whose results are
  /// void. If the device has failed, this worker ends.
  void end_device_work();
  /// Drops what runs steps.
  void drop_runner();
  /// Takes the communicators of the group that has formed anew, on devices too. Errors: those of
  /// WorkerGroups.
  Result<void> rejoin(const WorkerGroups::Find& find);
  std::string place() const;
  /// Reports the loading of weights to `load_progress`.
  void tell(const LoadedWeights& loaded) const;
  /// Approximate device memory that start() takes besides the KV cache.
  std::uint64_t later_bytes() const;
  /// Returns the error of a load or a start; if memory ran out, with this rank's place and the uses
  /// of memory. `before`: the device's memory before this worker took any.
  Error not_loaded(Error error, const Checkpoint& checkpoint, const DeviceMemory& before) const;
  Error not_started(Error error, std::int64_t kv_blocks) const;
  /// Allocates the KV cache and what runs steps over it.
  Result<void> allocate_steps(std::int64_t kv_blocks, PhaseTimes& times);
  /// Returns the GPU of the node that this rank uses; 0 on CPUs.
  Result<int> find_device() const;
  void serve();
  /// Waits until this worker is asked to leave or to end; false if it is not in time.
  bool wait_for_leave();
  /// Ends the thread of serve().
  void end_serving();
  /// Begins a step or finishes one: a step is answered as soon as it is ready, and meanwhile the
  /// next one is begun.
  Result<void> serve_step();
  /// Returns none if no plan came in time.
  Result<std::optional<StepPlan>> next_plan();
  Result<void> finish_step();
  /// Tells the executor of layers whose activations have become too large.
  void tell_peaks();
  bool is_ready();
  ExpertRows expert_rows() const;

  ActorContext& context_;
  WorkerSpec spec_;
  ModelConfig config_;  ///< set by communicators()
  SpanRecorder recorder_;
  std::int64_t since_ns_ = 0;             ///< when start() finished
  std::atomic<std::uint64_t> step_ = 0;   ///< begun or finished last
  std::atomic<bool> is_in_step_ = false;  ///< there are steps to finish
  std::timed_mutex step_mutex_;           ///< held while the runner or its device is used
  std::unique_ptr<WorkerGroups> groups_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Drafter> drafter_;  ///< on the rank that answers, if there is a draft model
  std::unique_ptr<ModelRunner> runner_;
  /// Counts of all calls of warm_up, which do not belong to the job.
  std::uint64_t uncounted_rows_ = 0;
  std::vector<std::int64_t> uncounted_expert_rows_;
  std::unique_ptr<StepPlane> step_plane_;
  std::optional<WorkerReport> report_;  ///< of load()
  ActorHandle<PeakSink> peak_sink_;     ///< set by start()
  std::int64_t kv_blocks_ = 0;          ///< that are allocated
  std::uint64_t earlier_rows_ = 0;      ///< of the model runners before this one
  std::mutex stop_mutex_;
  std::condition_variable stopped_;     ///< stopping_ is set
  std::atomic<bool> stopping_ = false;  ///< written under stop_mutex_
  std::thread loop_;
};

}  // namespace troupe
