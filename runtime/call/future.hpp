#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/base/result.hpp"
#include "runtime/call/call_hub.hpp"
#include "runtime/call/callback.hpp"
#include "runtime/call/callback_thread.hpp"
#include "runtime/call/codec.hpp"

namespace troupe {

/// An answer as it came. The thread that takes it decodes it, not the one that receives answers.
template <class T>
struct EncodedAnswer {
  Bytes bytes;
  std::weak_ptr<CallHub> hub;  ///< for the handles in it
};

/// Where the callbacks of a future run, and whose answers these are.
struct CallbackPlace {
  std::shared_ptr<CallbackThread> thread;  ///< null: the thread that completes the promise
  ActorId source = 0;
};

/// Is told when futures are ready; see Future::add_observer.
class ReadyObserver {
 public:
  virtual ~ReadyObserver() = default;
  /// The future that was observed with this index is ready. Must not block.
  virtual void on_ready(std::size_t index) noexcept = 0;
};

namespace future_detail {

/// Decodes T. A template of its own, because not all T of promises can be decoded.
template <class T>
Result<T> decode_answer(const EncodedAnswer<T>& answer) {
  return decode<T>(answer.bytes, answer.hub);
}

/// The shared state of a promise and its future. All functions are callable from any thread.
template <class T>
class State final : public DueCallback {
 public:
  explicit State(CallbackPlace place) : place_(std::move(place)) {}

  static void complete(const std::shared_ptr<State>& state, Result<T> result) {
    state->complete_with(state, [&] { state->result_.emplace(std::move(result)); });
  }
  static void complete_encoded(const std::shared_ptr<State>& state, EncodedAnswer<T> answer) {
    state->complete_with(state, [&] {
      state->encoded_ = std::move(answer);
      state->decode_ = &decode_answer<T>;
    });
  }

  void run_due() noexcept override {
    std::unique_lock lock(mutex_);
    const auto callback = std::exchange(callback_, nullptr);
    run_callback([&] { callback(take(lock)); });
  }

  Result<T> get(std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    if (!wait_for(ready_, lock, timeout, [this] { return done_; })) {
      return fail(ErrorCode::timed_out, "no answer within {} ms",
                  std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count());
    }
    if (taken_) {
      return fail(ErrorCode::invalid_argument, "the answer of this future was taken already");
    }
    taken_ = true;
    return take(lock);
  }

  bool wait(std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    return wait_for(ready_, lock, timeout, [this] { return done_; });
  }

  void set_ticket(std::weak_ptr<CallHub> hub, CallTicket ticket) {
    const std::lock_guard lock(mutex_);
    hub_ = std::move(hub);
    ticket_ = std::move(ticket);
  }
  void cancel() {
    std::unique_lock lock(mutex_);
    if (done_) return;
    const auto hub = hub_.lock();
    const CallTicket ticket = ticket_;
    lock.unlock();
    if (hub) hub->cancel(ticket);
  }

  bool add_observer(std::shared_ptr<ReadyObserver> observer, std::size_t index) {
    const std::lock_guard lock(mutex_);
    if (done_) return false;
    observers_.push_back({std::move(observer), index});
    return true;
  }
  void remove_observer(const ReadyObserver* observer) {
    const std::lock_guard lock(mutex_);
    std::erase_if(observers_,
                  [observer](const Observer& one) { return one.observer.get() == observer; });
  }

  void then(const std::shared_ptr<State>& self, std::function<void(Result<T>)> callback) {
    std::unique_lock lock(mutex_);
    if (taken_ || callback_) {
      lock.unlock();
      return run_callback(callback, fail(ErrorCode::invalid_argument,
                                         "the answer of this future was taken already"));
    }
    callback_ = std::move(callback);
    if (!done_) return;
    taken_ = true;
    lock.unlock();
    make_due(self);
  }

 private:
  template <class Put>
  void complete_with(const std::shared_ptr<State>& self, Put put) {
    std::vector<Observer> observers;
    bool has_callback = false;
    {
      std::lock_guard lock(mutex_);
      if (done_) return;
      done_ = true;
      put();
      ready_.notify_all();
      observers.swap(observers_);
      has_callback = callback_ != nullptr;
      taken_ = taken_ || has_callback;
    }
    for (const Observer& one : observers) one.observer->on_ready(one.index);
    if (has_callback) make_due(self);
  }

  /// The answer and the callback are there, and are this call's to bring together.
  void make_due(const std::shared_ptr<State>& self) {
    if (place_.thread == nullptr) return run_due();
    place_.thread->post(place_.source, encoded_.bytes.size(), self);
  }

  /// Moves the answer out of a state that is done; releases the lock.
  Result<T> take(std::unique_lock<std::mutex>& lock) {
    if (decode_ == nullptr) {
      Result<T> result = *std::move(result_);
      lock.unlock();
      return result;
    }
    const EncodedAnswer<T> encoded = std::move(encoded_);
    lock.unlock();
    return decode_(encoded);
  }

  const CallbackPlace place_;
  std::mutex mutex_;
  std::condition_variable ready_;
  bool done_ = false;
  bool taken_ = false;
  std::optional<Result<T>> result_;
  EncodedAnswer<T> encoded_;
  Result<T> (*decode_)(const EncodedAnswer<T>&) = nullptr;  ///< null: the answer is in result_
  std::function<void(Result<T>)> callback_;
  struct Observer {
    std::shared_ptr<ReadyObserver> observer;
    std::size_t index = 0;
  };
  std::vector<Observer> observers_;
  std::weak_ptr<CallHub> hub_;  ///< by which the call was made
  CallTicket ticket_;
};

}  // namespace future_detail

/// The answer of a call, which may not have come yet. Copies share one answer, which is taken once,
/// by `get` or by `then`. Dropping a future does not cancel the call. Callable from any thread.
template <class T>
class Future {
 public:
  using Value = T;

  /// Makes a future that is ready from the start.
  explicit Future(Result<T> result) : Future(CallbackPlace()) {
    future_detail::State<T>::complete(state_, std::move(result));
  }

  /// Waits at most `timeout` and moves the answer out. On a timeout the error is `timed_out`, the
  /// call goes on, and get may be called again.
  Result<T> get(std::chrono::nanoseconds timeout) { return state_->get(timeout); }

  /// Waits at most `timeout`; true if the answer is there. Does not take it.
  bool wait(std::chrono::nanoseconds timeout) const { return state_->wait(timeout); }
  bool ready() const { return wait(std::chrono::nanoseconds(0)); }

  /// Runs `callback(Result<T>)` once, when both it and the answer are there: for calls and spawns
  /// on the process's one callback thread, in the order in which the answers came (in that of
  /// `then` where they were there before); for other promises at once, on the thread that completes
  /// them or calls `then`. A callback that blocks, which it may do also for another future, delays
  /// later callbacks, and no call, answer or heartbeat. A call keeps its credit until its callback
  /// begins: calls to an actor whose callbacks are late wait for credits in the end, calls to
  /// others do not. Calls made from a callback fail rather than wait for credits. Its exceptions
  /// are logged as errors. A second `then` gets invalid_argument.
  void then(std::function<void(Result<T>)> callback) { state_->then(state_, std::move(callback)); }

  /// Asks that the call or task be not run, or not to its end: one that is still queued is answered
  /// with `cancelled`, and what runs may look at ActorContext::is_cancelled. The answer of a
  /// running method counts, whatever it is; a running task is answered with `cancelled` at once.
  /// Nothing happens where there is no answer to wait for, and to a future of another kind.
  void cancel() const { state_->cancel(); }

  /// Has the observer told once, when the answer is there, on the thread that brings it; false if
  /// it is there already. See wait_any.
  bool add_observer(std::shared_ptr<ReadyObserver> observer, std::size_t index) const {
    return state_->add_observer(std::move(observer), index);
  }
  void remove_observer(const ReadyObserver* observer) const { state_->remove_observer(observer); }

 private:
  template <class U>
  friend class Promise;
  explicit Future(CallbackPlace place)
      : state_(std::make_shared<future_detail::State<T>>(std::move(place))) {}

  std::shared_ptr<future_detail::State<T>> state_;
};

/// The producing end. The first `complete` counts; later ones are ignored.
template <class T>
class Promise {
 public:
  Promise() : future_(CallbackPlace()) {}
  explicit Promise(CallbackPlace place) : future_(std::move(place)) {}

  Future<T> future() const { return future_; }
  void complete(Result<T> result) const {
    future_detail::State<T>::complete(future_.state_, std::move(result));
  }
  /// Says which call it is, for Future::cancel.
  void set_ticket(std::weak_ptr<CallHub> hub, CallTicket ticket) const {
    future_.state_->set_ticket(std::move(hub), std::move(ticket));
  }
  /// Completes it with an answer that is decoded once it is taken.
  void complete_encoded(EncodedAnswer<T> answer) const {
    future_detail::State<T>::complete_encoded(future_.state_, std::move(answer));
  }

 private:
  Future<T> future_;
};

}  // namespace troupe
