#include "runtime/actor/task_worker_actor.hpp"

namespace troupe {

Result<std::unique_ptr<TaskWorkerActor>> TaskWorkerActor::create(ActorContext& context,
                                                                 const ActorAddress& service) {
  const auto hub = context.hub().lock();
  if (!hub) return fail(ErrorCode::cancelled, "this process is shutting down");
  TROUPE_TRY(auto worker, TaskWorker::start(context, {hub, service, [&context] {
                                                        context.exit("it cannot reach the driver");
                                                      }}));
  const ActorId target = task_target_of(context.address()).id;
  hub->add_target(target, worker);
  return std::make_unique<TaskWorkerActor>(hub, target, std::move(worker));
}

TaskWorkerActor::~TaskWorkerActor() {
  hub_->remove_target(target_);
  worker_->stop();
}

}  // namespace troupe
