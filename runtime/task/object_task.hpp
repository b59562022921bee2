#pragma once

#include <memory>
#include <span>
#include <type_traits>

#include "runtime/call/encode_answer.hpp"
#include "runtime/object/object_id.hpp"
#include "runtime/object/object_view.hpp"
#include "runtime/object/reference_scan.hpp"
#include "runtime/task/task_function.hpp"

namespace troupe::task_detail {

/// The object that a task is to compute; ahead of the function's arguments.
struct ResultTarget {
  ObjectAddress object;
  bool wants_value = false;  ///< the worker does not keep it: its process ends soon
  template <class Archive>
  void fields(Archive& archive) {
    archive(object, wants_value);
  }
};

/// The answer of such a task. The value of a type that may hold references to objects is encoded as
/// an answer is, so that they live until its owner has them; any other is the bytes of the object.
struct ObjectAnswer {
  bool is_held = false;  ///< in the worker's process, as the owner knows; there is no value then
  Bytes value;
  template <class Archive>
  void fields(Archive& archive) {
    archive(is_held, value);
  }
};

/// Keeps a large object in this process and has its owner know (ObjectStore::hold_result); answers
/// with the bytes of a small one, of one that is not to be kept here, and if it cannot be.
Bytes give_object(std::span<const std::byte> bytes, const ResultTarget& target,
                  const std::weak_ptr<CallHub>& hub);

template <class T>
Bytes give_result(const T& value, const ResultTarget& target, const std::weak_ptr<CallHub>& hub) {
  if (may_hold_refs<T>()) return encode(ObjectAnswer{false, encode_answer(value, hub)});
  if constexpr (BlockType<T>) {
    return give_object(std::as_bytes(std::span(value)), target, hub);
  } else {
    return give_object(encode(value), target, hub);
  }
}

/// A plain function as a task whose answer becomes an object.
template <auto function>
class ObjectTask {
  using Function = TaskFunction<function>;
  using Answer = typename Function::Answer;

 public:
  static Result<Bytes> run(ActorContext& context, std::span<const std::byte> encoded,
                           const std::weak_ptr<CallHub>& hub) {
    ResultTarget target;
    Decoder decoder(encoded, hub);
    decoder(target);
    const auto arguments = encoded.last(decoder.remaining());
    return Function::run_with(context, arguments, hub, [&](auto&& call) -> Result<Bytes> {
      if constexpr (std::is_same_v<typename Function::Return, Answer>) {
        return give_result(call(), target, hub);
      } else {
        TROUPE_TRY(const auto value, call());
        return give_result(value, target, hub);
      }
    });
  }

  /// As TaskFunction::id.
  inline static const TaskFunctionId id = TaskFunctions::add(
      function_name<function>(), type_name<ObjectTask<function>>(), &ObjectTask::run);
};

}  // namespace troupe::task_detail
