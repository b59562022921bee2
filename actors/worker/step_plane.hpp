#pragma once

#include <memory>
#include <string>

#include "actors/step/step_codec.hpp"
#include "actors/worker/worker.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/channel/channel.hpp"
#include "runtime/channel/shm_broadcast.hpp"

namespace troupe {

/// A worker's end of the step plane: plans come in, results go out. One thread at a time, except
/// interrupt().
class StepPlane {
 public:
  virtual ~StepPlane() = default;

  /// What the executor connects to; empty for a worker that is not the first of its node.
  virtual std::string address() const = 0;
  /// The next plan. Errors: timeout, cancelled, and those of the codec.
  virtual Result<StepPlan> receive(Deadline deadline) = 0;
  /// Answers it; only the first worker's answer goes anywhere.
  virtual Result<void> answer(const StepResult& result, Deadline deadline) = 0;
  virtual void interrupt() = 0;

  static Result<std::unique_ptr<StepPlane>> open(ActorContext& context, const WorkerSpec& spec);
};

}  // namespace troupe
