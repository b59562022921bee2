#include "runtime/actor/cluster_impl.hpp"
#include "runtime/actor/task_room.hpp"
#include "runtime/actor/task_worker_actor.hpp"

namespace troupe {

// Worker processes for tasks: actors as any other.

std::shared_ptr<TaskService> ClusterImpl::start_tasks(const std::shared_ptr<CallHub>& hub) {
  TaskService::Host host;
  host.hub = hub;
  host.rooms = std::make_shared<TaskRoom>(registry_);
  host.limits = options_.tasks;
  host.patience = options_.calls.credit_timeout;
  host.start_worker = [gate = gate_](const TaskScheduler::Orders::Start& start,
                                     TaskService::OnStarted done) {
    std::unique_lock lock(gate->mutex);
    if (gate->cluster != nullptr) return gate->cluster->start_task_worker(start, std::move(done));
    lock.unlock();
    done(fail(ErrorCode::cancelled, "the cluster is shutting down"));
  };
  host.stop_worker = [gate = gate_](const ActorAddress& worker, bool kill) {
    const std::lock_guard lock(gate->mutex);
    if (gate->cluster != nullptr) gate->cluster->stop_task_worker(worker, kill);
  };
  return TaskService::start(std::move(host));
}

void ClusterImpl::start_task_worker(const TaskScheduler::Orders::Start& start,
                                    TaskService::OnStarted done) {
  SpawnOptions options;
  options.resources = start.resources;
  options.node = start.node ? registry_->name_of_node(*start.node) : start.node_name;
  const auto started = [registry = registry_, done = std::move(done)](Result<ActorAddress> actor) {
    if (!actor.ok()) return done(std::move(actor).error());
    const auto place = registry->process_of(actor->id);
    if (!place.ok()) return done(place.error());
    done(TaskService::Started{*std::move(actor), place->node});
  };
  spawn_owned(0, options, std::string(TaskWorkerActor::actor_type),
              encode_arguments(std::tuple(task_service_at(services_->hub->endpoint()))), started);
}

void ClusterImpl::stop_task_worker(const ActorAddress& worker, bool kill) {
  if (!kill) return begin_stop(worker.id);
  const auto place = registry_->process_of(worker.id);
  if (place.ok()) (void)agents_.send(place->node, StopProcess{place->process, true});
}

}  // namespace troupe
