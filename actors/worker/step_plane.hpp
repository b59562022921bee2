#pragma once

#include <optional>
#include <span>
#include <string>

#include "actors/step/step_address.hpp"
#include "actors/step/step_codec.hpp"
#include "actors/worker/worker_spec.hpp"
#include "runtime/actor/actor_context.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/channel/channel.hpp"
#include "runtime/channel/shm_broadcast.hpp"

namespace troupe {

/// A worker's end of the step plane. The executor sends each plan to the replica's first worker on
/// each node, which fans it out to the replica's others there through shared memory; the first
/// worker of the last stage answers. One thread at a time, except interrupt().
class StepPlane {
 public:
  /// `epoch` is that of the workers' group.
  static Result<StepPlane> open(ActorContext& context, const WorkerSpec& spec, std::uint32_t epoch,
                                const ExecutorPlace& executor);

  /// The addresses at this worker that the executor connects to.
  StepAddresses addresses() const;
  /// Returns the next plan. Errors: timed_out, cancelled, and those of the codec.
  Result<StepPlan> receive(Deadline deadline);
  /// Answers the plan; does nothing on workers that do not answer.
  Result<void> answer(const StepResult& result, Deadline deadline);
  void interrupt();

  /// Makes this node forget the memory that the workers of the replica share in this epoch.
  void release(ActorContext& context) const;

 private:
  StepPlane() = default;
  /// `ranks`: the replica's on this node, ascending.
  Result<void> open_fan_out(ActorContext& context, const WorkerSpec& spec, std::uint32_t epoch,
                            std::span<const int> ranks);

  std::optional<Channel> plans_;               ///< on the first worker
  std::optional<ShmBroadcastWriter> fan_out_;  ///< on the first worker, if there are others
  std::optional<ShmBroadcastReader> reader_;   ///< on the other workers
  bool answers_ = false;
  std::optional<Channel> results_;  ///< on the worker that answers, if it is not the first
  StepEncoder encoder_;
  std::string region_;  ///< the name of the shared memory, empty if there is none
};

}  // namespace troupe
