#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/actor/actor_down.hpp"
#include "runtime/actor/actor_handle.hpp"
#include "runtime/actor/actor_type.hpp"
#include "runtime/actor/async/actor_timers.hpp"
#include "runtime/base/result.hpp"
#include "runtime/link/port_range.hpp"
#include "runtime/metrics/metrics_registry.hpp"
#include "runtime/object/encoded_value.hpp"
#include "runtime/object/object_access.hpp"
#include "runtime/process/unique_fd.hpp"
#include "runtime/security/plane_keys.hpp"
#include "runtime/task/submit.hpp"

namespace troupe {

using DownCallback = std::function<void(const ActorDown&)>;

/// Ends a watch when destroyed: the destructor waits for a callback that has begun (unless it runs
/// on this very thread), and no callback runs afterwards. So do not destroy it under a lock that
/// the callback takes. It waits without a limit, also for a callback that a cluster's shutdown has
/// left behind, and tells of it in the log every 5 s. May outlive the runtime.
class [[nodiscard]] WatchToken {
 public:
  WatchToken() = default;
  explicit WatchToken(std::function<void()> unwatch) : unwatch_(std::move(unwatch)) {}
  WatchToken(WatchToken&& other) noexcept : unwatch_(std::exchange(other.unwatch_, nullptr)) {}
  WatchToken& operator=(WatchToken&& other) noexcept {
    reset();
    unwatch_ = std::exchange(other.unwatch_, nullptr);
    return *this;
  }
  ~WatchToken() { reset(); }
  void reset() {
    if (auto unwatch = std::exchange(unwatch_, nullptr)) unwatch();
  }

 private:
  std::function<void()> unwatch_;
};

struct SpawnOptions;

namespace actor_detail {
template <class A>
void register_class();  // in actor_types.hpp
}

/// An actor's view of the runtime, passed to its constructor; lives as long as the actor. All
/// functions are callable from any thread of the actor.
class ActorContext : public ObjectAccess {
 public:
  virtual ~ActorContext() = default;

  virtual const ActorAddress& address() const = 0;  ///< this actor
  template <class A>
  ActorHandle<A> self() const {
    return ActorHandle<A>(address(), hub());
  }
  /// Its full name: the one it was spawned with, behind its namespace and a '/' if that is not the
  /// cluster's own.
  const std::string& name() const { return address().name; }
  virtual const std::string& node() const = 0;  ///< its node's name
  /// Numeric; where other hosts of the job reach its node. Empty if no other host takes part.
  virtual const std::string& node_address() const = 0;
  /// For what this actor listens at, if other hosts reach it.
  virtual PortRange ports() const = 0;
  virtual const std::vector<int>& device_ids() const = 0;  ///< reserved for this actor
  virtual const std::string& job_folder() const = 0;       ///< empty if the job has none
  virtual const std::string& log_path() const = 0;         ///< this process's log; empty: stderr

  /// Looks an actor up by the name it was spawned with; waits at most `timeout` for the directory
  /// (it does not wait for the actor to be spawned). `name_space`: the one it was spawned in;
  /// empty: the cluster's own (ClusterOptions::name_space), wherever this actor is. Errors:
  /// not_found, which tells the namespaces that have the name; invalid_argument if it is of another
  /// type.
  template <class A>
  Result<ActorHandle<A>> find(std::string_view name, std::string_view name_space,
                              std::chrono::milliseconds timeout = std::chrono::seconds(5)) {
    TROUPE_TRY(auto address, find_address(name, name_space, actor_type_of<A>(), timeout));
    return ActorHandle<A>(std::move(address), hub());
  }
  template <class A>
  Result<ActorHandle<A>> find(std::string_view name,
                              std::chrono::milliseconds timeout = std::chrono::seconds(5)) {
    return find<A>(name, {}, timeout);
  }
  virtual Result<ActorAddress> find_address(std::string_view name, std::string_view name_space,
                                            std::string_view type,
                                            std::chrono::milliseconds timeout) = 0;

  /// Starts an actor as Cluster::spawn does. This actor owns it: when this incarnation of this
  /// actor is gone, however it ended, it ends too, after its current method, and its name is free
  /// at once; unless it `is_detached`.
  template <class A, class... Args>
  Future<ActorHandle<A>> spawn(const SpawnOptions& options, Args&&... args) {
    actor_detail::register_class<A>();
    const ConstructionArguments<A> arguments(std::forward<Args>(args)...);
    const auto calls = hub().lock();
    const Promise<ActorHandle<A>> promise({calls ? calls->callbacks() : nullptr});
    spawn_actor(options, std::string(actor_type_of<A>()), encode_arguments(arguments),
                [promise, hub = hub()](Result<ActorAddress> address) {
                  if (!address.ok()) return promise.complete(std::move(address).error());
                  promise.complete(ActorHandle<A>(*std::move(address), hub));
                });
    return promise.future();
  }
  /// Ends an actor that this one owns, after its current method; its watchers are told. Nothing
  /// happens to others.
  virtual void stop(const ActorAddress& owned) = 0;
  template <class A>
  void stop(const ActorHandle<A>& owned) {
    stop(owned.address());
  }

  /// Runs `callback` exactly once, on a runtime thread, when the actor is gone or if it is gone
  /// already; before, at the end of each incarnation that is followed by another (ActorDown::
  /// restarts). The callback must not block. Hold the token as long as the callback may run.
  virtual WatchToken watch(const ActorAddress& actor, DownCallback callback) = 0;
  template <class A>
  WatchToken watch(const ActorHandle<A>& actor, DownCallback callback) {
    return watch(actor.address(), std::move(callback));
  }

  /// Returns the key of the channels of some actors, the same for each of them, for
  /// ChannelKeys::derive. This process never sees the secret that the key comes from.
  /// permission_denied if this actor is not one of them; invalid_argument for a purpose that is
  /// empty or too long.
  virtual Result<Key> channel_key(const ChannelScope& scope) = 0;

  /// Returns a region of memory that all actors of this node share under `name`. The node's agent
  /// makes it at the first request (a memfd of `bytes`, zeroed) and gives every caller a descriptor
  /// of it, to be mapped. It is freed when nobody maps it any more and its name is released, or all
  /// processes that asked for it have ended. invalid_argument if it exists with another size.
  virtual Result<UniqueFd> shared_memory(std::string_view name, std::size_t bytes) = 0;
  /// Forgets all regions of this node whose names start with `prefix`; mappings stay valid. The
  /// next request for such a name makes a new region.
  virtual Result<void> release_shared_memory(std::string_view prefix) = 0;

  /// Ends this actor after its current method; watchers get `reason`.
  virtual void exit(const std::string& reason) = 0;

  /// Until when the caller of the method that runs on this thread waits; no_deadline if it has not
  /// said, and on a thread that runs none. Calls that the method makes inherit it, unless theirs is
  /// nearer.
  virtual CallDeadline deadline() const = 0;
  /// True once nobody waits for the answer of the method or task that runs on this thread: its
  /// caller has cancelled it (Future::cancel), or the deadline has passed.
  virtual bool is_cancelled() const = 0;
  /// Runs `function` on this actor once, `delay` from now, as a method of it: on the actor's thread
  /// of the moment, while no other method runs (in an actor whose methods run on several threads,
  /// as one of them). Not after the actor's end, nor after the token is dropped
  /// (TimerToken::release keeps it going without). What it throws is an error in the log. For a
  /// coroutine it can call the actor itself: `context.self<A>().call<&A::refresh>()`.
  [[nodiscard]] TimerToken run_after(std::chrono::nanoseconds delay,
                                     std::function<void()> function) {
    return start_timer(timers(), delay, std::chrono::nanoseconds(0), std::move(function));
  }
  /// The same every `interval`, which is more than zero, from one interval from now on. Runs that
  /// are due while another one still runs, or the actor does something else, are left out.
  [[nodiscard]] TimerToken run_every(std::chrono::nanoseconds interval,
                                     std::function<void()> function) {
    return start_timer(timers(), interval, interval, std::move(function));
  }
  /// The metrics of this process, in which the actor makes its own. They outlive it.
  virtual MetricsRegistry& metrics() const = 0;
  /// Runs a task, as Cluster::submit does, by way of the driver. A process has at most
  /// ClusterOptions::calls.credits of them under way; more wait as its calls do. While the caller
  /// waits for a future, if it is a task itself, its resources are others'.
  template <auto function, class... Args>
  auto submit(const TaskOptions& options, Args&&... args) {
    return task_detail::submit<function>(hub(), options, task_sender(),
                                         std::forward<Args>(args)...);
  }
  /// See Cluster::submit_object. The object is lost with this process, which owns it.
  template <auto function, class... Args>
  auto submit_object(const TaskOptions& options, Args&&... args) {
    return task_detail::submit_object<function>(objects(), hub(), options, task_sender(),
                                                std::forward<Args>(args)...);
  }

 protected:
  virtual const std::shared_ptr<ActorTimers>& timers() = 0;
  using AddressCallback = std::function<void(Result<ActorAddress>)>;
  virtual void spawn_actor(const SpawnOptions& options, std::string type,
                           EncodedArguments arguments, AddressCallback done) = 0;
  virtual const SendTask& task_sender() const = 0;
};

}  // namespace troupe
