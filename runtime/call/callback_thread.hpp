#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <typeinfo>

#include "runtime/base/result.hpp"
#include "runtime/call/actor_address.hpp"
#include "runtime/call/callback.hpp"

namespace troupe {

/// What a CallbackThread runs.
class DueCallback {
 public:
  virtual ~DueCallback() = default;
  virtual void run_due() noexcept = 0;
  /// What is called, before it is: the type of the user's function where it is one.
  virtual const std::type_info& called() const noexcept { return typeid(*this); }
};

/// The one thread of a process on which callbacks of futures run, in the order in which they fell
/// due. So a callback that takes long delays other callbacks, but no thread that receives answers,
/// calls or heartbeats. It bounds nothing: whoever posts looks at the backlog (CallHub does).
/// Callable from any thread.
class CallbackThread {
 public:
  /// The callbacks that are due and have not begun, with the answers that they are given.
  struct Backlog {
    std::size_t callbacks = 0, bytes = 0;
  };

  /// Starts the thread. `on_begin` is called on it whenever a callback leaves the backlog of its
  /// source. `grace`: how long stop() waits while the same callback runs. resource_exhausted if no
  /// thread can be started.
  static Result<std::shared_ptr<CallbackThread>> start(
      std::function<void(ActorId)> on_begin, std::chrono::milliseconds grace = callback_grace);
  ~CallbackThread();  ///< stops
  CallbackThread(const CallbackThread&) = delete;
  CallbackThread& operator=(const CallbackThread&) = delete;

  /// Has the callback run, for an answer of `source` of so many bytes. After stop it runs at once,
  /// in the calling thread.
  void post(ActorId source, std::size_t bytes, std::shared_ptr<DueCallback> due);
  /// What is due for answers of `source`.
  Backlog backlog(ActorId source) const;
  bool on_own_thread() const;
  /// Runs what is due, and ends the thread. On that thread itself it ends after what is due. A
  /// callback that does not return in time is left behind with the thread, those behind it are
  /// dropped, and an error in the log tells of it. What the callbacks captured lives until it
  /// returns.
  void stop();

 private:
  struct State;
  explicit CallbackThread(std::shared_ptr<State> state) : state_(std::move(state)) {}
  const std::shared_ptr<State> state_;
};

}  // namespace troupe
