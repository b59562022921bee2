#pragma once

#include <memory>
#include <type_traits>

#include "runtime/base/result.hpp"
#include "runtime/call/codec.hpp"

namespace troupe {

/// What callers get of a method or task that returns R, a Result<R> or nothing.
template <class R>
struct AnswerOf {
  using Type = R;
};
template <class R>
struct AnswerOf<Result<R>> {
  using Type = R;
};

/// Encodes what a method or a task returns. References to objects in it live until their receiver
/// has them.
template <class T>
Bytes encode_answer(const T& value, const std::weak_ptr<CallHub>& hub) {
  Encoder encoder(hub);
  encoder(value);
  return encoder.take();
}

/// Calls a method or a task, and encodes what it returns; its error if that is one. Exceptions pass
/// through.
template <class Invoke>
Result<Bytes> answer_of(Invoke&& invoke, const std::weak_ptr<CallHub>& hub) {
  using Return = std::invoke_result_t<Invoke>;
  if constexpr (std::is_void_v<Return>) {
    invoke();
    return Bytes{};
  } else if constexpr (std::is_same_v<Return, Result<void>>) {
    TROUPE_CHECK(invoke());
    return Bytes{};
  } else if constexpr (std::is_same_v<Return, Result<typename AnswerOf<Return>::Type>>) {
    TROUPE_TRY(const auto value, invoke());
    return encode_answer(value, hub);
  } else {
    return encode_answer(invoke(), hub);
  }
}

}  // namespace troupe
