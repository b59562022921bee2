#include "runtime/actor/actor_cell.hpp"

#include <system_error>
#include <thread>

#include <pthread.h>

#include "runtime/base/exception_text.hpp"

namespace troupe {

void HostServices::report_end(const ActorDown& down) const {
  if (down.restarts) {
    hub->mark_restarting(down.id, down.incarnation, down.message);
  } else {
    hub->mark_down(down.id, down.message);
  }
  watches->on_down(down);
}

class ActorCell::Context final : public ActorContext {
 public:
  Context(ActorCell& cell, std::vector<int> devices) : cell_(cell), devices_(std::move(devices)) {}

  const ActorAddress& address() const override { return cell_.address_; }
  const std::string& node() const override { return services().node; }
  const std::string& node_address() const override { return services().node_address; }
  PortRange ports() const override { return services().ports; }
  const std::vector<int>& device_ids() const override { return devices_; }
  const std::string& job_folder() const override { return services().job_folder; }
  const std::string& log_path() const override { return services().log_path; }
  std::weak_ptr<CallHub> hub() const override { return services().hub; }

  Result<ActorAddress> find_address(std::string_view name, std::string_view type,
                                    std::chrono::milliseconds timeout) override {
    auto found = services().directory.call<&Directory::find>(std::string(name), std::string(type));
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
  void exit(std::string reason) override { cell_.request_exit(std::move(reason)); }
  void stop(const ActorAddress& owned) override { services().stop(address().id, owned.id); }

 protected:
  void spawn_actor(const SpawnOptions& options, std::string type, Bytes arguments,
                   AddressCallback done) override {
    services().spawn(address().id, options, std::move(type), std::move(arguments), std::move(done));
  }

 private:
  const HostServices& services() const { return *cell_.services_; }
  ActorCell& cell_;
  const std::vector<int> devices_;
};

Result<std::shared_ptr<ActorCell>> ActorCell::start(ActorAddress address, std::vector<int> devices,
                                                    std::shared_ptr<const HostServices> services,
                                                    Factory factory, Events events) {
  std::shared_ptr<ActorCell> cell(
      new ActorCell(std::move(address), std::move(services), std::move(events)));
  try {
    std::thread([cell, devices = std::move(devices), factory = std::move(factory)]() mutable {
      cell->run(std::move(devices), factory);
      std::lock_guard lock(cell->mutex_);
      cell->over_ = true;
      cell->changed_.notify_all();
    }).detach();  // wait_until_over replaces join, because it has a limit
  } catch (const std::system_error& error) {
    return fail(ErrorCode::resource_exhausted, "cannot start a thread for actor '{}': {}",
                cell->address_.name, error.what());
  }
  return cell;
}

Result<std::unique_ptr<ActorObject>> ActorCell::make(const Factory& factory,
                                                     ActorContext& context) {
  try {
    return factory(context);
  } catch (...) {
    return fail(ErrorCode::internal, "its construction threw: {}", current_exception_text());
  }
}

void ActorCell::run(std::vector<int> devices, const Factory& factory) {
  ::pthread_setname_np(::pthread_self(), address_.name.substr(0, 15).c_str());
  Context context(*this, std::move(devices));
  auto made = make(factory, context);
  if (!made.ok()) {
    refuse_all();
    return events_.on_made(made.error());
  }
  services_->hub->add_target(address_.id, shared_from_this());
  events_.on_made({});
  run_methods(**made);
  services_->hub->remove_target(address_.id);
  refuse_all();
  made->reset();
  const std::string reason = exit_reason_.value_or("");
  events_.on_ended(exit_reason_.has_value(), reason);
}

void ActorCell::run_methods(ActorObject& actor) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopped_ || exit_reason_ || !mailbox_.empty(); });
    if (stopped_ || exit_reason_) return;
    IncomingCall call = std::move(mailbox_.front());
    mailbox_.pop_front();
    lock.unlock();
    auto answer = actor.run(call.method, call.arguments, services_->hub);
    call.answer(std::move(answer));
    call = {};
    lock.lock();
  }
}

void ActorCell::deliver(IncomingCall call) {
  {
    std::lock_guard lock(mutex_);
    if (!closed_) {
      mailbox_.push_back(std::move(call));
      changed_.notify_one();
      return;
    }
  }
  call.answer(fail(ErrorCode::peer_died, "actor '{}' has ended", address_.name));
}

void ActorCell::refuse_all() {
  std::deque<IncomingCall> refused;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    refused = std::exchange(mailbox_, {});
  }
  for (auto& call : refused)
    call.answer(fail(ErrorCode::peer_died, "actor '{}' has ended", address_.name));
}

void ActorCell::stop() {
  std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

void ActorCell::request_exit(std::string reason) {
  std::lock_guard lock(mutex_);
  if (!exit_reason_) exit_reason_ = std::move(reason);
  changed_.notify_all();
}

bool ActorCell::wait_until_over(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return over_; });
}

}  // namespace troupe
