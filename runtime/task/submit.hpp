#pragma once

#include <memory>
#include <tuple>
#include <utility>

#include "runtime/call/call_hub.hpp"
#include "runtime/call/call_promise.hpp"
#include "runtime/object/encoded_value.hpp"
#include "runtime/object/reference_scan.hpp"
#include "runtime/task/object_task.hpp"
#include "runtime/task/result_task.hpp"
#include "runtime/task/task_function.hpp"
#include "runtime/task/task_messages.hpp"

namespace troupe::task_detail {

/// Encodes a task, sends it, and returns the future of its answer, whose callbacks run on the hub's
/// callback thread.
template <auto function, class... Args>
auto submit(const std::weak_ptr<CallHub>& hub, const TaskOptions& options, const SendTask& send,
            Args&&... args) {
  using Function = TaskFunction<function>;
  using Answer = typename Function::Answer;
  using Arguments = typename Function::Arguments;
  static_assert(sizeof...(Args) == std::tuple_size_v<Arguments>, "wrong number of arguments");
  const auto calls = hub.lock();
  auto arguments = encode_value(Arguments(std::forward<Args>(args)...));
  // References to objects live until the worker has registered, which is before it answers.
  const CallPromise<Answer> promise(
      {.place = {calls ? calls->callbacks() : nullptr, task_service_id},
       .hub = hub,
       .kept = std::move(arguments.kept),
       .decodes_at_once = may_hold_refs<Answer>()});
  promise.set_ticket(
      send(SubmittedTask{options, Function::id, std::move(arguments.bytes)}, promise.completion()));
  return promise.future();
}

/// What a task has answered with as an object of type T: references in it become those of this
/// process, which the object keeps.
template <class T>
Result<EncodedValue> to_object(Bytes answer, const std::weak_ptr<CallHub>& hub) {
  if (!may_hold_refs<T>()) return EncodedValue{std::move(answer), {}};
  TROUPE_TRY(const T value, decode<T>(answer, hub));
  return encode_value(value);
}

/// The same as submit, for a task whose answer becomes an object of this process.
template <auto function, class... Args>
auto submit_object(ObjectStore& store, const std::weak_ptr<CallHub>& hub,
                   const TaskOptions& options, SendTask send, Args&&... args) {
  using Answer = typename TaskFunction<function>::Answer;
  using Arguments = typename TaskFunction<function>::Arguments;
  static_assert(sizeof...(Args) == std::tuple_size_v<Arguments>, "wrong number of arguments");
  static_assert(!std::is_void_v<Answer>, "a function without a result makes no object");
  auto arguments = encode_value(Arguments(std::forward<Args>(args)...));
  return ObjectRef<Answer>(ResultTask::start(
      store, hub, std::move(send),
      SubmittedTask{options, ObjectTask<function>::id, std::move(arguments.bytes)},
      std::move(arguments.kept), &to_object<Answer>));
}

}  // namespace troupe::task_detail
