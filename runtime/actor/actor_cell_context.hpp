#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/actor/actor_cell.hpp"
#include "runtime/call/call_scope.hpp"

namespace troupe {

/// What an actor sees of the runtime: that of its process, and of its cell. A part of
/// actor_cell.cpp.
class ActorCell::Context final : public ActorContext {
 public:
  Context(ActorCell& cell, std::vector<int> devices) : cell_(cell) {
    if (!devices.empty()) devices_ = std::make_unique<const std::vector<int>>(std::move(devices));
  }

  const ActorAddress& address() const override { return *cell_.address_; }
  const std::string& node() const override { return services().node; }
  const std::string& node_address() const override { return services().node_address; }
  PortRange ports() const override { return services().ports; }
  const std::vector<int>& device_ids() const override {
    static const std::vector<int> none;
    return devices_ ? *devices_ : none;
  }
  const std::string& job_folder() const override { return services().job_folder; }
  const std::string& log_path() const override { return services().log_path; }
  std::weak_ptr<CallHub> hub() const override { return services().hub; }

  Result<ActorAddress> find_address(std::string_view name, std::string_view name_space,
                                    std::string_view type,
                                    std::chrono::milliseconds timeout) override {
    auto found = services().directory.call<&Directory::find>(
        std::string(name), std::string(name_space), std::string(type));
    return found.get(timeout);
  }

  WatchToken watch(const ActorAddress& actor, DownCallback callback) override {
    return services().watches->watch(actor.id, std::move(callback));
  }

  Result<Key> channel_key(const ChannelScope& scope) override {
    return services().channel_key(address(), scope);
  }
  Result<UniqueFd> shared_memory(std::string_view name, std::size_t bytes) override {
    return services().shared_memory(name, bytes);
  }
  Result<void> release_shared_memory(std::string_view prefix) override {
    return services().release_shared_memory(prefix);
  }
  CallDeadline deadline() const override {
    const CallScope* scope = CallScope::current();
    return scope == nullptr ? no_deadline : scope->deadline();
  }
  bool is_cancelled() const override {
    const CallScope* scope = CallScope::current();
    return scope != nullptr && scope->is_cancelled();
  }
  MetricsRegistry& metrics() const override { return services().hub->observer()->metrics(); }
  ObjectStore& objects() override { return *services().objects; }
  void exit(const std::string& reason) override { cell_.request_exit(reason); }
  void stop(const ActorAddress& owned) override { services().stop(address().id, owned.id); }

 protected:
  void spawn_actor(const SpawnOptions& options, std::string type, EncodedArguments arguments,
                   AddressCallback done) override {
    services().spawn(address().id, options, std::move(type), std::move(arguments), std::move(done));
  }
  const std::shared_ptr<ActorTimers>& timers() override { return cell_.timers(); }
  const SendTask& task_sender() const override { return services().submit_task; }

 private:
  const HostServices& services() const { return *cell_.services_; }
  ActorCell& cell_;
  std::unique_ptr<const std::vector<int>> devices_;  ///< null for most actors
};

}  // namespace troupe
