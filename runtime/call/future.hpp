#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "runtime/base/deadline.hpp"
#include "runtime/base/result.hpp"
#include "runtime/call/callback.hpp"

namespace troupe {

namespace future_detail {

/// The shared state of a promise and its future. All functions are callable from any thread.
template <class T>
class State {
 public:
  void complete(Result<T> result) {
    std::function<void(Result<T>)> callback;
    {
      std::lock_guard lock(mutex_);
      if (done_) return;
      done_ = true;
      if (!callback_) {
        result_.emplace(std::move(result));
        ready_.notify_all();
        return;
      }
      callback = std::move(callback_);
      taken_ = true;
      ready_.notify_all();
    }
    run_callback(callback, std::move(result));
  }

  Result<T> get(std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    if (!wait_for(ready_, lock, timeout, [this] { return done_; })) {
      return fail(ErrorCode::timeout, "no answer within {} ms",
                  std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count());
    }
    if (taken_) {
      return fail(ErrorCode::invalid_argument, "the answer of this future was taken already");
    }
    taken_ = true;
    return *std::move(result_);
  }

  bool wait(std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    return wait_for(ready_, lock, timeout, [this] { return done_; });
  }

  void then(std::function<void(Result<T>)> callback) {
    std::unique_lock lock(mutex_);
    if (taken_ || callback_) {
      lock.unlock();
      return run_callback(callback, fail(ErrorCode::invalid_argument,
                                         "the answer of this future was taken already"));
    }
    if (!done_) {
      callback_ = std::move(callback);
      return;
    }
    taken_ = true;
    Result<T> result = *std::move(result_);
    lock.unlock();
    run_callback(callback, std::move(result));
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  bool done_ = false;
  bool taken_ = false;
  std::optional<Result<T>> result_;
  std::function<void(Result<T>)> callback_;
};

}  // namespace future_detail

/// The answer of a call, which may not have come yet. Copies share one answer, which is taken once,
/// by `get` or by `then`. Dropping a future does not cancel the call. Callable from any thread.
template <class T>
class Future {
 public:
  using Value = T;

  /// Makes a future that is ready from the start.
  explicit Future(Result<T> result) : Future() { state_->complete(std::move(result)); }

  /// Waits at most `timeout` and moves the answer out. On a timeout the error is `timeout`, the
  /// call goes on, and get may be called again.
  Result<T> get(std::chrono::nanoseconds timeout) { return state_->get(timeout); }

  /// Waits at most `timeout`; true if the answer is there. Does not take it.
  bool wait(std::chrono::nanoseconds timeout) const { return state_->wait(timeout); }
  bool ready() const { return wait(std::chrono::nanoseconds(0)); }

  /// Runs `callback(Result<T>)` once: at once in this thread if the answer is there, else on the
  /// runtime thread that receives it. It must not block or wait for another future, because that
  /// thread receives the answers. Calls made from it fail rather than wait for credits. Its
  /// exceptions are logged as errors. A second `then` gets invalid_argument.
  void then(std::function<void(Result<T>)> callback) { state_->then(std::move(callback)); }

 private:
  template <class U>
  friend class Promise;
  Future() : state_(std::make_shared<future_detail::State<T>>()) {}

  std::shared_ptr<future_detail::State<T>> state_;
};

/// The producing end. The first `complete` counts; later ones are ignored.
template <class T>
class Promise {
 public:
  Future<T> future() const { return future_; }
  void complete(Result<T> result) const { future_.state_->complete(std::move(result)); }

 private:
  Future<T> future_;
};

}  // namespace troupe
