#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/actor_types.hpp"
#include "runtime/actor/directory.hpp"
#include "runtime/actor/watch_table.hpp"
#include "runtime/call/call_hub.hpp"
#include "runtime/link/port_range.hpp"

namespace troupe {

/// The services that all actors of one process share.
struct HostServices {
  std::string node;
  std::string node_address;
  PortRange ports;
  std::string job_folder;
  std::string log_path;
  /// See ActorContext::channel_key.
  std::function<Result<Key>(const ActorAddress& asker, const ChannelScope& scope)> channel_key;
  std::shared_ptr<CallHub> hub;
  std::shared_ptr<WatchTable> watches;
  ActorHandle<Directory> directory;
  /// See ActorContext::shared_memory.
  std::function<Result<UniqueFd>(std::string_view name, std::size_t bytes)> shared_memory;
  std::function<Result<void>(std::string_view prefix)> release_shared_memory;
  /// See ActorContext::spawn. `done` is called once, unless this process ends before.
  std::function<void(ActorId owner, const SpawnOptions& options, std::string type, Bytes arguments,
                     std::function<void(Result<ActorAddress>)> done)>
      spawn;
  /// See ActorContext::stop.
  std::function<void(ActorId owner, ActorId actor)> stop;

  /// Tells the callers and the watchers in this process.
  void report_end(const ActorDown& down) const;
};

/// One hosted actor: its mailbox, its thread, and its context. The thread makes the actor, runs its
/// methods one at a time and destroys it. Callable from any thread.
class ActorCell final : public CallTarget, public std::enable_shared_from_this<ActorCell> {
 public:
  /// Called on the actor's thread.
  struct Events {
    /// The actor is made and callable, or the error of making it (then on_ended does not follow).
    std::function<void(Result<void>)> on_made;
    /// The actor is destroyed and its calls are answered. `exited`: it ended itself.
    std::function<void(bool exited, const std::string& reason)> on_ended;
  };
  using Factory = std::function<Result<std::unique_ptr<ActorObject>>(ActorContext&)>;

  /// Starts the thread. The actor is in the hub between on_made and on_ended. resource_exhausted if
  /// no thread can be started; then no event follows.
  static Result<std::shared_ptr<ActorCell>> start(ActorAddress address, std::vector<int> devices,
                                                  std::shared_ptr<const HostServices> services,
                                                  Factory factory, Events events);

  void deliver(IncomingCall call) override;
  /// Asks the actor to end after the method that runs now.
  void stop();
  /// Waits at most `timeout` until the thread has nothing left to do; false if it still runs.
  bool wait_until_over(std::chrono::milliseconds timeout);

 private:
  class Context;
  ActorCell(ActorAddress address, std::shared_ptr<const HostServices> services, Events events)
      : address_(std::move(address)), services_(std::move(services)), events_(std::move(events)) {}
  void run(std::vector<int> devices, const Factory& factory);
  Result<std::unique_ptr<ActorObject>> make(const Factory& factory, ActorContext& context);
  void run_methods(ActorObject& actor);
  void request_exit(std::string reason);
  void refuse_all();

  const ActorAddress address_;
  const std::shared_ptr<const HostServices> services_;
  const Events events_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<IncomingCall> mailbox_;
  bool closed_ = false;   ///< takes no more calls
  bool over_ = false;     ///< the thread is done
  bool stopped_ = false;  ///< asked to end
  std::optional<std::string> exit_reason_;
};

}  // namespace troupe
