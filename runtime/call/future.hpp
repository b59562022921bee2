#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/base/result.hpp"
#include "runtime/call/actor_address.hpp"
#include "runtime/call/callback.hpp"
#include "runtime/call/callback_thread.hpp"
#include "runtime/call/codec.hpp"

namespace troupe {

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

/// The shared state of a promise and its future. Small, as there is one for each call under way:
/// what only some futures need is made when it is needed. All functions are callable from any
/// thread.
template <class T>
class State : public DueCallback {
 public:
  explicit State(CallbackPlace place) : place_(std::move(place)) {}

  static void complete(const std::shared_ptr<State>& state, Result<T> result) {
    state->complete_with(state,
                         [&] { state->answer_.template emplace<Result<T>>(std::move(result)); });
  }

  void run_due() noexcept override {
    std::unique_lock lock(mutex_);
    const auto callback = std::exchange(attention_->callback, nullptr);
    run_callback([&] { callback(take(lock)); });
  }

  /// Of the thread that runs it next, which the callback belongs to once it is due.
  const std::type_info& called() const noexcept override {
    return attention_->callback.target_type();
  }

  Result<T> get(std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    if (!wait_until_done(lock, timeout)) {
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
    return wait_until_done(lock, timeout);
  }

  /// Cancels the call that the answer is of.
  virtual void cancel() {}

  bool add_observer(std::shared_ptr<ReadyObserver> observer, std::size_t index) {
    const std::lock_guard lock(mutex_);
    if (done_) return false;
    attention().observers.push_back({std::move(observer), index});
    return true;
  }
  void remove_observer(const ReadyObserver* observer) {
    const std::lock_guard lock(mutex_);
    if (!attention_) return;
    std::erase_if(attention_->observers,
                  [observer](const Observer& one) { return one.observer.get() == observer; });
  }

  void then(const std::shared_ptr<State>& self, std::function<void(Result<T>)> callback) {
    std::unique_lock lock(mutex_);
    if (taken_ || (attention_ && attention_->callback)) {
      lock.unlock();
      return run_callback(callback, fail(ErrorCode::invalid_argument,
                                         "the answer of this future was taken already"));
    }
    attention().callback = std::move(callback);
    if (!done_) return;
    taken_ = true;
    lock.unlock();
    make_due(self);
  }

 protected:
  /// The first counts: calls `put()`, which sets answer_, with the lock held.
  template <class Put>
  void complete_with(const std::shared_ptr<State>& self, Put put) {
    std::vector<Observer> observers;
    bool has_callback = false;
    {
      std::lock_guard lock(mutex_);
      if (done_) return;
      done_ = true;
      put();
      if (!attention_) return;
      attention_->ready.notify_all();
      observers.swap(attention_->observers);
      has_callback = attention_->callback != nullptr;
      taken_ = taken_ || has_callback;
    }
    for (const Observer& one : observers) one.observer->on_ready(one.index);
    if (has_callback) make_due(self);
  }
  /// Of an answer that came as bytes.
  virtual Result<T> decode_answer(const Bytes& /*encoded*/) const {
    return fail(ErrorCode::internal, "the answer of a promise that is of no call came encoded");
  }

  std::mutex mutex_;
  bool done_ = false;
  bool taken_ = false;
  /// The thread that takes an encoded answer decodes it, not the one that receives answers.
  std::variant<std::monostate, Result<T>, Bytes> answer_;

 private:
  struct Observer {
    std::shared_ptr<ReadyObserver> observer;
    std::size_t index = 0;
  };
  /// Who waits for the answer.
  struct Attention {
    std::condition_variable ready;
    std::function<void(Result<T>)> callback;
    std::vector<Observer> observers;
  };

  Attention& attention() {
    if (!attention_) attention_ = std::make_unique<Attention>();
    return *attention_;
  }

  bool wait_until_done(std::unique_lock<std::mutex>& lock, std::chrono::nanoseconds timeout) {
    if (done_ || timeout <= timeout.zero()) return done_;
    return wait_for(attention().ready, lock, timeout, [this] { return done_; });
  }

  /// The answer and the callback are there, and are this call's to bring together.
  void make_due(const std::shared_ptr<State>& self) {
    if (place_.thread == nullptr) return run_due();
    const Bytes* const encoded = std::get_if<Bytes>(&answer_);
    place_.thread->post(place_.source, encoded == nullptr ? 0 : encoded->size(), self);
  }

  /// Moves the answer out of a state that is done; releases the lock.
  Result<T> take(std::unique_lock<std::mutex>& lock) {
    auto answer = std::exchange(answer_, std::monostate());
    lock.unlock();
    if (const Bytes* const encoded = std::get_if<Bytes>(&answer)) return decode_answer(*encoded);
    return std::get<Result<T>>(std::move(answer));
  }

  const CallbackPlace place_;
  std::unique_ptr<Attention> attention_;
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
  template <class U>
  friend class CallPromise;
  explicit Future(CallbackPlace place)
      : state_(std::make_shared<future_detail::State<T>>(std::move(place))) {}
  explicit Future(std::shared_ptr<future_detail::State<T>> state) : state_(std::move(state)) {}

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

 private:
  Future<T> future_;
};

}  // namespace troupe
