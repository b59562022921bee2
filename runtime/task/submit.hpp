#pragma once

#include <memory>
#include <tuple>
#include <utility>

#include "runtime/call/call_hub.hpp"
#include "runtime/call/call_promise.hpp"
#include "runtime/object/reference_scan.hpp"
#include "runtime/task/task_function.hpp"
#include "runtime/task/task_messages.hpp"

namespace troupe::task_detail {

/// Encodes a task, gives it to `send(SubmittedTask, CallCompletion)`, and returns the future of its
/// answer, whose callbacks run on the hub's callback thread.
template <auto function, class Send, class... Args>
auto submit(const std::weak_ptr<CallHub>& hub, const TaskOptions& options, Send&& send,
            Args&&... args) {
  using Function = TaskFunction<function>;
  using Answer = typename Function::Answer;
  using Arguments = typename Function::Arguments;
  static_assert(sizeof...(Args) == std::tuple_size_v<Arguments>, "wrong number of arguments");
  const auto calls = hub.lock();
  const Arguments arguments(std::forward<Args>(args)...);
  Encoder encoder;
  encoder(arguments);
  const CallPromise<Answer> promise(
      {.place = {calls ? calls->callbacks() : nullptr, task_service_id},
       .hub = hub,
       .kept = encoder.take_kept(),
       .decodes_at_once = may_hold_refs<Answer>()});
  send(SubmittedTask{options, Function::id, encoder.take()}, promise.completion());
  return promise.future();
}

}  // namespace troupe::task_detail
