#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/call/call_hub.hpp"
#include "runtime/object/encoded_value.hpp"
#include "runtime/object/object_source.hpp"
#include "runtime/object/object_store.hpp"
#include "runtime/task/task_messages.hpp"

namespace troupe {

/// Gives a task to the TaskService; returns the ticket to cancel it by. It outlives the actor that
/// has submitted the task.
using SendTask = std::function<CallTicket(SubmittedTask task, CallCompletion done)>;

/// The task that computes an object of this process: its lineage. The arguments, with the objects
/// that they refer to, are kept as long as the object may have to be computed again. Callable from
/// any thread.
class ResultTask final : public ObjectSource, public std::enable_shared_from_this<ResultTask> {
 public:
  using Kept = std::vector<std::shared_ptr<const void>>;
  /// What a task has answered with as the object; see task_detail::ObjectAnswer.
  using ToObject = Result<EncodedValue> (*)(Bytes answer, const std::weak_ptr<CallHub>& hub);

  /// Makes the object and submits the task, whose arguments are encoded and refer to `kept`.
  static ObjectSharePtr start(ObjectStore& store, const std::weak_ptr<CallHub>& hub, SendTask send,
                              SubmittedTask task, Kept kept, ToObject to_object);

  /// See start().
  ResultTask(std::weak_ptr<CallHub> hub, SendTask send, SubmittedTask task, Kept kept,
             ToObject to_object);

  void recompute(const Error& why) override;
  void cancel() override;

 private:
  void submit(bool is_repeat);
  /// Has a repeat, which was refused, submitted again later unless it was cancelled meanwhile;
  /// false if there is no hub any more.
  bool wait_for_room();
  Error cancelled_early() const;
  void on_answer(Result<Bytes> answer);
  void fulfil(Result<EncodedValue> value);

  const std::weak_ptr<CallHub> hub_;
  const SendTask send_;
  const ToObject to_object_;
  ObjectAddress object_;  ///< set by start()

  std::mutex mutex_;
  SubmittedTask task_;
  Kept kept_;
  std::int32_t retries_left_;
  bool is_under_way_ = false;
  bool is_cancelled_ = false;
  bool waits_for_room_ = false;  ///< is under way, but nobody has it
  std::optional<Error> lost_;    ///< while it is under way
  CallTicket ticket_;
};

}  // namespace troupe
