#pragma once

#include <memory>

#include "runtime/actor/actor_registry.hpp"
#include "runtime/task/task_scheduler.hpp"

namespace troupe {

/// The nodes' room for tasks: that which actors leave. Callable from any thread.
class TaskRoom final : public TaskRooms {
 public:
  explicit TaskRoom(std::shared_ptr<ActorRegistry> registry) : registry_(std::move(registry)) {}

  std::optional<Room> reserve(const Resources& asked, const std::string& node) override {
    auto reserved = registry_->reserve(asked, node);
    if (!reserved) return std::nullopt;
    return Room{reserved->node, std::move(reserved->held)};
  }
  void release(const Room& room) override {
    registry_->release({room.node, room.held, std::nullopt});
  }
  Result<void> check(const Resources& asked, const std::string& node) const override {
    return registry_->check_schedulable(asked, node);
  }
  std::size_t max_workers(std::size_t node) const override {
    return static_cast<std::size_t>(std::max(1, registry_->cpus_of(node)));
  }

 private:
  const std::shared_ptr<ActorRegistry> registry_;
};

}  // namespace troupe
