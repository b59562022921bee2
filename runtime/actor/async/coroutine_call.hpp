#pragma once

#include <coroutine>
#include <memory>
#include <utility>

#include "runtime/actor/async/actor_executor.hpp"
#include "runtime/actor/async/actor_timers.hpp"
#include "runtime/base/result.hpp"
#include "runtime/call/callback_thread.hpp"
#include "runtime/call/codec.hpp"
#include "runtime/call/future.hpp"
#include "runtime/call/incoming_call.hpp"

namespace troupe {

class CoroutineCall;
class StreamOutlet;

/// Where the calls of an actor whose methods are coroutines run.
class CoroutineHost {
 public:
  virtual const std::weak_ptr<ActorExecutor>& executor() const = 0;
  virtual const std::shared_ptr<ActorTimers>& timers() const = 0;
  /// The call is started, or goes on after a wait.
  virtual void on_resume() = 0;
  /// The call has run as far as it can for now. May destroy it.
  virtual void on_pause(CoroutineCall& call) = 0;

 protected:
  ~CoroutineHost() = default;
};

/// One call whose method is a coroutine: what all coroutines that run for it share. Used on the
/// actor's thread only, which may be another one after each wait.
///
/// Coroutines do not resume each other: each says what comes next and returns to resume(). So the
/// stack does not grow with chains and loops of them, and g++'s tail calls are not relied upon.
class CoroutineCall {
 public:
  CoroutineCall() = default;
  virtual ~CoroutineCall() = default;
  CoroutineCall(const CoroutineCall&) = delete;
  CoroutineCall& operator=(const CoroutineCall&) = delete;

  /// Starts the method of `call`; `host` outlives this.
  void start(CoroutineHost& host, const IncomingCall& call) {
    host_ = &host;
    deadline_ = call.deadline;
    cancel_ = call.cancel;
    resume(method());
  }
  /// Resumes one of its coroutines and those that come next, until all wait; then the host's
  /// on_pause.
  void resume(std::coroutine_handle<> coroutine);
  /// For the coroutine that runs now: the one that comes next.
  void continue_with(std::coroutine_handle<> coroutine) { next_ = coroutine; }
  CoroutineHost& host() const { return *host_; }

  /// The method's own coroutine.
  virtual std::coroutine_handle<> method() const = 0;
  /// What the method returned, encoded; once, after its end.
  virtual Result<Bytes> take_answer() = 0;
  /// The stream that the method produces; null if it returns one value.
  virtual StreamOutlet* outlet() { return nullptr; }
  /// Destroys its coroutines.
  virtual void destroy() = 0;

 private:
  CoroutineHost* host_ = nullptr;
  CallDeadline deadline_ = no_deadline;
  CancelToken cancel_;
  std::coroutine_handle<> next_;
};

/// A co_await of what another thread brings. Shared by the coroutine and that thread.
class Waiter final : public ActorTask,
                     public DueCallback,
                     public ReadyObserver,
                     public std::enable_shared_from_this<Waiter> {
 public:
  Waiter(CoroutineCall& call, std::coroutine_handle<> coroutine)
      : executor_(call.host().executor()), call_(&call), coroutine_(coroutine) {}

  /// Has the coroutine resumed on its actor's thread. Any thread.
  void run_due() noexcept override {
    if (const auto executor = executor_.lock()) executor->post(shared_from_this());
  }
  void on_ready(std::size_t) noexcept override { run_due(); }
  /// The coroutine was resumed, or is destroyed. The actor's thread.
  void abandon() { call_ = nullptr; }

  void run_on_actor() noexcept override {
    if (CoroutineCall* const call = std::exchange(call_, nullptr)) call->resume(coroutine_);
  }

 private:
  const std::weak_ptr<ActorExecutor> executor_;
  CoroutineCall* call_;  ///< of the actor's thread
  const std::coroutine_handle<> coroutine_;
};

}  // namespace troupe
