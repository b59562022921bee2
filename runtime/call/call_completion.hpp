#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

#include "runtime/base/result.hpp"
#include "runtime/call/codec.hpp"

namespace troupe {

/// What waits for the answer of a call. Told once, on any thread; must not block.
class AnswerReceiver {
 public:
  virtual ~AnswerReceiver() = default;
  /// `self`: owns this.
  virtual void receive(const std::shared_ptr<AnswerReceiver>& self, Result<Bytes> answer) = 0;
};

/// Receives the answer of a call: the encoded return value, or the error. Called exactly once, on
/// any thread; must not block. Copies are one receiver.
class CallCompletion {
 public:
  CallCompletion() = default;        ///< of no call
  CallCompletion(std::nullptr_t) {}  // NOLINT: implicit
  explicit CallCompletion(std::shared_ptr<AnswerReceiver> receiver)
      : receiver_(std::move(receiver)) {}
  /// Calls `function(Result<Bytes>)`.
  template <std::invocable<Result<Bytes>> Function>
    requires(!std::same_as<std::decay_t<Function>, CallCompletion>)
  CallCompletion(Function&& function)  // NOLINT: implicit
      : receiver_(
            std::make_shared<Caller<std::decay_t<Function>>>(std::forward<Function>(function))) {}

  void operator()(Result<Bytes> answer) const { receiver_->receive(receiver_, std::move(answer)); }
  explicit operator bool() const { return receiver_ != nullptr; }

 private:
  template <class Function>
  class Caller final : public AnswerReceiver {
   public:
    explicit Caller(Function function) : function_(std::move(function)) {}
    void receive(const std::shared_ptr<AnswerReceiver>& /*self*/, Result<Bytes> answer) override {
      function_(std::move(answer));
    }

   private:
    Function function_;
  };

  std::shared_ptr<AnswerReceiver> receiver_;
};

}  // namespace troupe
