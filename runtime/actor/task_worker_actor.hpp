#pragma once

#include <memory>
#include <string_view>

#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/methods.hpp"
#include "runtime/task/task_worker.hpp"

namespace troupe {

/// The actor of a worker process for tasks. It takes no calls itself: the TaskWorker beside it
/// does.
class TaskWorkerActor {
 public:
  /// `service`: the driver's TaskService.
  static Result<std::unique_ptr<TaskWorkerActor>> create(ActorContext& context,
                                                         const ActorAddress& service);
  TaskWorkerActor(std::shared_ptr<CallHub> hub, ActorId target, std::shared_ptr<TaskWorker> worker)
      : hub_(std::move(hub)), target_(target), worker_(std::move(worker)) {}
  ~TaskWorkerActor();  ///< waits for the task that runs
  TaskWorkerActor(const TaskWorkerActor&) = delete;
  TaskWorkerActor& operator=(const TaskWorkerActor&) = delete;

  static constexpr std::string_view actor_type = "troupe.TaskWorker";
  using Methods = troupe::Methods<>;

 private:
  const std::shared_ptr<CallHub> hub_;
  const ActorId target_;
  const std::shared_ptr<TaskWorker> worker_;
};

}  // namespace troupe
