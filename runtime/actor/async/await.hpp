#pragma once

#include <chrono>
#include <concepts>
#include <coroutine>
#include <memory>
#include <utility>

#include "runtime/actor/async/async.hpp"
#include "runtime/call/future.hpp"

namespace troupe {

/// `TROUPE_TRY` and `TROUPE_CHECK` for coroutines, which return by co_return. In an Async<void> an
/// error cannot be returned: such a coroutine is an Async<Result<void>>.
#define TROUPE_CO_TRY(declaration, expression) \
  TROUPE_CO_TRY_IMPL_(TROUPE_CONCAT_(troupe_result_, __LINE__), declaration, expression)
#define TROUPE_CO_TRY_IMPL_(name, declaration, expression) \
  auto name = (expression);                                \
  if (!name.ok()) co_return std::move(name).error();       \
  declaration = std::move(name).value()
#define TROUPE_CO_CHECK(expression)                                                         \
  do {                                                                                      \
    auto troupe_result_ = (expression);                                                     \
    static_assert(std::is_same_v<decltype(troupe_result_), ::troupe::Result<void>>,         \
                  "TROUPE_CO_CHECK takes a Result<void>; take a value with TROUPE_CO_TRY"); \
    if (!troupe_result_.ok()) co_return std::move(troupe_result_).error();                  \
  } while (false)

namespace async_detail {

/// What awaiters of things from other threads have in common.
class WaiterHolder {
 public:
  WaiterHolder() = default;
  WaiterHolder(const WaiterHolder&) = delete;
  WaiterHolder& operator=(const WaiterHolder&) = delete;

 protected:
  ~WaiterHolder() {
    if (waiter_) waiter_->abandon();
  }
  template <std::derived_from<PromiseBase> P>
  const std::shared_ptr<Waiter>& make_waiter(std::coroutine_handle<P> waits) {
    return waiter_ = std::make_shared<Waiter>(*waits.promise().call, waits);
  }
  const std::shared_ptr<Waiter>& waiter() const { return waiter_; }

 private:
  std::shared_ptr<Waiter> waiter_;
};

template <class T>
class FutureAwaiter final : WaiterHolder {
 public:
  explicit FutureAwaiter(Future<T> future) : future_(std::move(future)) {}
  bool await_ready() const { return future_.ready(); }
  template <std::derived_from<PromiseBase> P>
  void await_suspend(std::coroutine_handle<P> waits) {
    const auto& waiter = make_waiter(waits);
    if (!future_.add_observer(waiter, 0)) waiter->run_due();
  }
  Result<T> await_resume() { return future_.get(std::chrono::nanoseconds(0)); }

 private:
  Future<T> future_;
};

class SleepAwaiter final : WaiterHolder {
 public:
  explicit SleepAwaiter(std::chrono::nanoseconds delay) : delay_(delay) {}
  ~SleepAwaiter() {
    if (timers_) timers_->cancel(due_, *waiter());
  }
  bool await_ready() const { return false; }
  template <std::derived_from<PromiseBase> P>
  void await_suspend(std::coroutine_handle<P> waits) {
    timers_ = waits.promise().call->host().timers();
    due_ = ActorTimers::Clock::now() + delay_;
    timers_->add(due_, make_waiter(waits));
  }
  Result<void> await_resume() const { return {}; }

 private:
  const std::chrono::nanoseconds delay_;
  ActorTimers::Clock::time_point due_;
  std::shared_ptr<ActorTimers> timers_;
};

}  // namespace async_detail

/// `co_await` of a future in a coroutine of an actor: the Result<T> of its answer, which it takes.
/// The answer is decoded on the actor's thread.
template <class T>
async_detail::FutureAwaiter<T> operator co_await(Future<T> future) {
  return async_detail::FutureAwaiter<T>(std::move(future));
}

/// `TROUPE_CO_CHECK(co_await sleep_for(10ms));` lets the actor do other things for that long, or up
/// to a millisecond longer; for no time at all (0ms) it lets those run that are due.
inline async_detail::SleepAwaiter sleep_for(std::chrono::nanoseconds delay) {
  return async_detail::SleepAwaiter(delay);
}

}  // namespace troupe
