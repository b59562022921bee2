#pragma once

#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "runtime/actor/async/async.hpp"
#include "runtime/actor/async/stream.hpp"
#include "runtime/actor/methods.hpp"
#include "runtime/call/codec.hpp"
#include "runtime/call/encode_answer.hpp"

namespace troupe::async_detail {

/// What calls of coroutine methods have in common: the arguments and, destroyed before them, the
/// coroutine.
template <class A, auto m>
class MethodCall : public CoroutineCall {
 public:
  using Traits = methods_detail::MethodTraits<decltype(m)>;

  std::coroutine_handle<> method() const final { return coroutine_->handle(); }
  void destroy() final { coroutine_.reset(); }

 protected:
  /// Makes the coroutine, which is not started; exceptions pass through.
  void make(A& actor) {
    std::apply([&](auto&... values) { coroutine_.emplace((actor.*m)(std::move(values)...)); },
               arguments_);
    coroutine_->handle().promise().call = this;
  }

  typename Traits::Arguments arguments_{};
  std::optional<typename Traits::Return> coroutine_;
};

/// A call of a method that returns Async<T>.
template <class A, auto m>
class AsyncCall final : public MethodCall<A, m> {
 public:
  static Result<std::unique_ptr<CoroutineCall>> make(A& actor, std::span<const std::byte> encoded,
                                                     const std::weak_ptr<CallHub>& hub) {
    auto call = std::make_unique<AsyncCall>();
    call->hub_ = hub;
    Decoder decoder(encoded, hub);
    decoder(call->arguments_);
    TROUPE_CHECK(decoder.finish());
    call->MethodCall<A, m>::make(actor);
    return std::unique_ptr<CoroutineCall>(std::move(call));
  }

 private:
  Result<Bytes> take_answer() override {
    auto result = this->coroutine_->handle().promise().take();
    if (!result.ok()) return std::move(result).error();
    if constexpr (std::is_void_v<typename MethodCall<A, m>::Traits::Answer>) {
      return Bytes{};
    } else {
      return encode_answer(*result, hub_);
    }
  }

  std::weak_ptr<CallHub> hub_;
};

/// A call of a method that returns Stream<T>.
template <class A, auto m>
class StreamCall final : public MethodCall<A, m> {
 public:
  static Result<std::unique_ptr<CoroutineCall>> make(A& actor, std::span<const std::byte> encoded,
                                                     const std::weak_ptr<CallHub>& hub) {
    auto call = std::make_unique<StreamCall>();
    StreamOpen open;
    Decoder decoder(encoded, hub);
    decoder(open, call->arguments_);
    TROUPE_CHECK(decoder.finish());
    call->outlet_.emplace(open, hub);
    call->MethodCall<A, m>::make(actor);
    call->coroutine_->handle().promise().outlet = &*call->outlet_;
    return std::unique_ptr<CoroutineCall>(std::move(call));
  }

 private:
  Result<Bytes> take_answer() override { return Bytes{}; }
  StreamOutlet* outlet() override { return &*outlet_; }

  std::optional<StreamOutlet> outlet_;
};

}  // namespace troupe::async_detail
