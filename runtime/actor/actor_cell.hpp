#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/actor_types.hpp"
#include "runtime/actor/async/async_calls.hpp"
#include "runtime/actor/async/threaded_calls.hpp"
#include "runtime/actor/host_services.hpp"
#include "runtime/base/task_pool.hpp"
#include "runtime/call/call_queue.hpp"
#include "runtime/call/incoming_call.hpp"

namespace troupe {

/// One hosted actor: its mailbox and its context. The actor is made, its methods are run and it is
/// destroyed by one thread at a time: in turns on the threads of the process's pool
/// (HostServices::threads), each of a few calls, or all on one thread of its own. Coroutines that
/// its methods are (AsyncCalls) are resumed in these turns, and its timers run in them. Only the
/// methods of a class without coroutines whose limit is above one, or that has concurrency groups,
/// run on several threads of the pool at once (ThreadedCalls). Callable from any thread.
class ActorCell final : public CallTarget,
                        public PoolTask,
                        public ActorExecutor,
                        public ThreadedHost,
                        public std::enable_shared_from_this<ActorCell> {
 public:
  /// Told of any number of actors, by the thread of the moment of each.
  struct Events {
    /// The actor is destroyed and its calls are answered. `exited`: it ended itself.
    std::function<void(const ActorAddress& actor, bool exited, const std::string& reason)> on_ended;
    /// The actor has asked to end itself: called once, on the thread that asks. May be empty.
    std::function<void(const ActorAddress& actor, const std::string& reason)> on_exit_asked{};
  };
  using Factory = std::function<Result<std::unique_ptr<ActorObject>>(ActorContext&)>;
  /// An actor to be started.
  struct Start {
    SharedAddress address;
    std::vector<int> devices{};
    bool dedicated_thread = false;  ///< it has a thread of its own
    int max_concurrency = 0;        ///< SpawnOptions::max_concurrency
    Factory factory;
    /// Called once by the actor's thread: it is made and callable, or the error of making it (then
    /// on_ended does not follow).
    std::function<void(Result<void>)> on_made;
    std::shared_ptr<const Events> events;
  };

  /// Has the actor made. It is in the hub between on_made and on_ended. resource_exhausted if no
  /// thread can be started; then no event follows.
  static Result<std::shared_ptr<ActorCell>> start(Start start,
                                                  std::shared_ptr<const HostServices> services);
  ~ActorCell() override;

  void deliver(IncomingCall call) override;
  std::optional<std::uint32_t> incarnation() const override { return address_->incarnation; }
  const ActorAddress& address() const { return *address_; }
  void drop(const CancelToken& cancelled) override;
  void run_task() noexcept override;
  void post(std::shared_ptr<ActorTask> task) override;
  void run_call(IncomingCall& call) noexcept override;
  void on_thread_left() override;
  /// Asks the actor to end after the method that runs now.
  void stop();
  /// For others it ends at once, as with its process: it can be called no more, its calls end as
  /// those of an actor that has (a running one that is not retried once its method has), and no
  /// event follows.
  void kill();
  /// Waits at most `timeout` until the actor has ended and its events are told; false if not.
  bool wait_until_over(std::chrono::milliseconds timeout);

 private:
  class Context;
  class DropQueued;
  struct Private {};  ///< keeps others from the constructor

 public:
  ActorCell(Private, Start start, std::shared_ptr<const HostServices> services);

 private:
  /// How a turn ended: there is nothing to do, more to do, or never again.
  enum class Turn { idle, more, over };

  Result<void> start_thread();
  void run_on_own_thread();
  /// Has it take a turn soon, unless it is going to.
  void wake(std::unique_lock<std::mutex> lock);
  Turn take_turn();
  bool make();
  /// Sets up how its class's calls share its time.
  Result<void> prepare_concurrency();
  const std::shared_ptr<ActorTimers>& timers();
  /// Moves the memory of the queues out of an actor that rests, but for what it may keep.
  void give_up_rooms(CallQueue<>& of_taken, CallQueue<>& of_mailbox);
  /// Takes what is in the mailbox and what was posted, unless there is nothing (`idle`) or the
  /// actor is to end (`over`).
  Turn take_calls();
  /// Runs the next of the posted tasks that were taken; false if there is none.
  bool run_taken_task();
  Turn end();
  Error ended() const;
  void note_over();
  void request_exit(const std::string& reason);
  void refuse_all();
  void refuse(const IncomingCall& call) const;

  /// What it takes to make the actor.
  struct Making {
    Factory factory;
    std::function<void(Result<void>)> on_made;
    int max_concurrency = 0;
  };
  /// What only some actors need; it is never taken away.
  struct Extras {
    std::condition_variable changed;
    std::vector<std::shared_ptr<ActorTask>> tasks;
    /// Of the thread of the moment: out of `tasks`, and which of them is the next.
    std::vector<std::shared_ptr<ActorTask>> taken_tasks;
    std::size_t next_task = 0;
    std::shared_ptr<ActorTimers> timers;  ///< made when first used
    std::optional<std::string> exit_reason;
  };

  /// With mutex_ held.
  Extras& extras() {
    if (!extras_) extras_ = std::make_unique<Extras>();
    return *extras_;
  }

  // Small, as there are many actors that wait.

  const SharedAddress address_;
  const std::shared_ptr<const HostServices> services_;
  const std::shared_ptr<const Events> events_;
  std::unique_ptr<Making> making_;  ///< until it is made; of the thread of the moment
  const bool dedicated_thread_;
  bool has_coroutines_ = false;  ///< set before the actor is callable

  // Of the thread of the moment.
  bool has_taken_tasks_ = false;  ///< extras_ are there, and have some
  bool has_room_ = false;         ///< one of HostServices::mailbox_rooms
  std::unique_ptr<Context> context_;
  std::unique_ptr<ActorObject> actor_;
  std::shared_ptr<ActorLoad> load_;  ///< from on_made until its calls are refused
  CallQueue<> taken_;                ///< out of the mailbox

  // Set before the actor is callable; null for most actors.
  std::unique_ptr<AsyncCalls> async_;  ///< its class has coroutines; of the thread of the moment
  std::unique_ptr<ThreadedCalls> threaded_;

  std::mutex mutex_;
  CallQueue<> mailbox_;
  std::unique_ptr<Extras> extras_;
  bool is_due_ = false;                  ///< takes a turn, or will
  bool closed_ = false;                  ///< takes no more calls
  bool over_ = false;                    ///< takes no more turns
  std::atomic<bool> is_ending_ = false;  ///< was stopped or wants to exit; written under mutex_
  std::atomic<bool> is_killed_ = false;  ///< see kill(); written under mutex_
};

}  // namespace troupe
