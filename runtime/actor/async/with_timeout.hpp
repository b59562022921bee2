#pragma once

#include <chrono>
#include <concepts>
#include <coroutine>
#include <memory>
#include <utility>

#include "runtime/actor/async/await.hpp"

namespace troupe {

namespace async_detail {

template <class T>
class TimeoutAwaiter final : WaiterHolder {
 public:
  TimeoutAwaiter(Future<T> future, std::chrono::nanoseconds timeout)
      : future_(std::move(future)), timeout_(timeout) {}
  ~TimeoutAwaiter() {
    if (!timers_) return;
    timers_->cancel(due_, *waiter());
    future_.remove_observer(waiter().get());
  }
  bool await_ready() const { return future_.ready(); }
  template <std::derived_from<PromiseBase> P>
  void await_suspend(std::coroutine_handle<P> waits) {
    timers_ = waits.promise().call->host().timers();
    due_ = ActorTimers::Clock::now() + timeout_;
    const std::shared_ptr<Waiter> waiter = make_waiter(waits);
    timers_->add(due_, waiter);
    if (!future_.add_observer(waiter, 0)) waiter->run_due();
  }
  Result<T> await_resume() {
    if (future_.ready()) return future_.get(std::chrono::nanoseconds(0));
    return fail(ErrorCode::timed_out, "no answer within {} ms",
                std::chrono::duration_cast<std::chrono::milliseconds>(timeout_).count());
  }

 private:
  Future<T> future_;
  const std::chrono::nanoseconds timeout_;
  ActorTimers::Clock::time_point due_;
  std::shared_ptr<ActorTimers> timers_;
};

}  // namespace async_detail

/// `co_await with_timeout(future, 100ms)` in a coroutine of an actor: the Result<T> of its answer,
/// or timed_out. After a timeout the call goes on, and the future may be awaited again.
template <class T>
async_detail::TimeoutAwaiter<T> with_timeout(Future<T> future, std::chrono::nanoseconds timeout) {
  return {std::move(future), timeout};
}

}  // namespace troupe
