#pragma once

#include <concepts>
#include <coroutine>
#include <optional>
#include <utility>

#include "runtime/actor/async/coroutine_call.hpp"
#include "runtime/actor/methods.hpp"
#include "runtime/base/exception_text.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

template <class T>
class Async;

namespace async_detail {

/// What the promises of all coroutines of an actor have in common.
class PromiseBase {
 public:
  /// Returns to CoroutineCall::resume, which goes on with whoever waits for this coroutine.
  struct FinalAwaiter {
    bool await_ready() const noexcept { return false; }
    template <std::derived_from<PromiseBase> P>
    void await_suspend(std::coroutine_handle<P> ended) const noexcept {
      ended.promise().call->continue_with(ended.promise().caller);
    }
    void await_resume() const noexcept {}
  };

  std::suspend_always initial_suspend() const noexcept { return {}; }
  FinalAwaiter final_suspend() const noexcept { return {}; }

  CoroutineCall* call = nullptr;   ///< that it runs for; set before it is started
  std::coroutine_handle<> caller;  ///< waits for its end; null for the method itself
};

template <class T>
using Answer = typename AnswerOf<T>::Type;

/// The end of a coroutine of Async<T>.
template <class T>
class ReturnBase : public PromiseBase {
 public:
  void return_value(Result<Answer<T>> result) { result_.emplace(std::move(result)); }
  template <class U>
    requires(!std::convertible_to<U, Result<Answer<T>>> && std::convertible_to<U, Answer<T>>)
  void return_value(U&& value) {
    result_.emplace(Answer<T>(std::forward<U>(value)));
  }

 protected:
  std::optional<Result<Answer<T>>> result_;
};
template <>
class ReturnBase<void> : public PromiseBase {
 public:
  void return_void() { result_.emplace(); }

 protected:
  std::optional<Result<void>> result_;
};

template <class T>
class Promise final : public ReturnBase<T> {
 public:
  Async<T> get_return_object() {
    return Async<T>(std::coroutine_handle<Promise>::from_promise(*this));
  }
  void unhandled_exception() noexcept {
    this->result_.emplace(
        fail(ErrorCode::exception, "a coroutine threw {}", current_exception_description()));
  }
  Result<Answer<T>> take() { return *std::move(this->result_); }
};

}  // namespace async_detail

/// What a coroutine method of an actor returns, and any coroutine that such a method awaits:
///
///   Async<int> sum(std::vector<ActorHandle<Counter>> counters) {
///     int sum = 0;
///     for (const auto& counter : counters) {
///       TROUPE_CO_TRY(const int value, co_await counter.call<&Counter::value>());
///       sum += value;
///     }
///     co_return sum;
///   }
///
/// The name is that of Python's `async def`, of which Ray's async actors are made: `Future` is the
/// answer of a call, whoever computes it, and a `task` in Ray is a function without an actor.
///
/// It starts when it is awaited or, as a method, when its call begins. It ends with `co_return` of
/// a T, a Result<T> or an Error; Async<void> with `co_return` alone, so a coroutine without a value
/// that can fail is an Async<Result<void>>. `co_await` of an Async<T> gives a Result<T>; an
/// exception that leaves a coroutine is an error of it (`exception`).
///
/// Threads: all coroutines and other methods of an actor run one at a time. While one waits in
/// co_await others run, so what it knew of the actor may have changed afterwards. It goes on on the
/// actor's thread of the moment, which for actors that share a process may be another one: hold no
/// lock and nothing thread-local over a co_await. What blocks without co_await (Future::get) blocks
/// the actor.
/// Ends: when the actor ends, coroutines that wait are destroyed, and with them their variables;
/// their callers are told that the actor has ended.
/// Arguments of methods live until the method ends, also those taken by reference. References that
/// other coroutines take must outlive these; a lambda that is a coroutine must outlive it, as in
/// all of C++.
///
/// Compilers: g++ 12 destroys temporaries twice that an expression with co_await initialises as
/// aggregates (`co_await f({.count = 1})`, `co_await handle.call<&A::f>(Query{word, 1})`), and
/// lambdas with captures; give them names before it. Temporaries that a constructor or a function
/// makes are fine.
///
/// Move only. One that is never awaited never starts.
template <class T>
class [[nodiscard]] Async {
 public:
  using promise_type = async_detail::Promise<T>;
  using Value = async_detail::Answer<T>;
  using Handle = std::coroutine_handle<promise_type>;

  explicit Async(Handle handle) : handle_(handle) {}
  Async(Async&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Async& operator=(Async&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Async() {
    if (handle_) handle_.destroy();
  }

  class Awaiter {
   public:
    explicit Awaiter(Handle awaited) : awaited_(awaited) {}
    bool await_ready() const noexcept { return false; }
    template <std::derived_from<async_detail::PromiseBase> P>
    void await_suspend(std::coroutine_handle<P> waits) noexcept {
      CoroutineCall* const call = waits.promise().call;
      awaited_.promise().call = call;
      awaited_.promise().caller = waits;
      call->continue_with(awaited_);
    }
    Result<Value> await_resume() { return awaited_.promise().take(); }

   private:
    const Handle awaited_;
  };
  Awaiter operator co_await() && noexcept { return Awaiter(handle_); }

  /// For the runtime: the coroutine.
  Handle handle() const { return handle_; }

 private:
  Handle handle_;
};

}  // namespace troupe
