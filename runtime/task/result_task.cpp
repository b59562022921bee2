#include "runtime/task/result_task.hpp"

#include <atomic>
#include <utility>

#include "runtime/base/log.hpp"
#include "runtime/task/object_task.hpp"

namespace troupe {
namespace {

/// So long a task that is to run again waits where there is no room for it.
constexpr std::chrono::milliseconds room_turn{100};

}  // namespace

ResultTask::ResultTask(std::weak_ptr<CallHub> hub, SendTask send, SubmittedTask task, Kept kept,
                       ToObject to_object)
    : hub_(std::move(hub)),
      send_(std::move(send)),
      to_object_(to_object),
      task_(std::move(task)),
      kept_(std::move(kept)),
      retries_left_(task_.options.max_retries) {}

ObjectSharePtr ResultTask::start(ObjectStore& store, const std::weak_ptr<CallHub>& hub,
                                 SendTask send, SubmittedTask task, Kept kept, ToObject to_object) {
  const auto made = std::make_shared<ResultTask>(hub, std::move(send), std::move(task),
                                                 std::move(kept), to_object);
  ObjectSharePtr share = store.make_pending(made);
  made->object_ = share->address();
  made->submit(false);
  return share;
}

void ResultTask::submit(bool is_repeat) {
  SubmittedTask task;
  {
    const std::lock_guard lock(mutex_);
    is_under_way_ = true;
    // Also if this is the last time: it may be given to a worker whose death is not known yet.
    task.options = task_.options;
    task.function = task_.function;
    Encoder encoder;
    encoder.reserve(task_.arguments.size() + 256);
    encoder(task_detail::ResultTarget{object_, task_.options.resources.devices > 0});
    encoder.put_raw(task_.arguments.data(), task_.arguments.size());
    task.arguments = encoder.take();
  }
  // An answer that is there before `send_` returns is a refusal of the task.
  const auto is_taken = std::make_shared<std::atomic<bool>>(false);
  auto done = [self = shared_from_this(), is_taken, is_repeat](Result<Bytes> answer) {
    const bool has_no_room = is_repeat && !*is_taken && !answer.ok() &&
                             answer.error().code == ErrorCode::resource_exhausted;
    if (has_no_room && self->wait_for_room()) return;
    self->on_answer(std::move(answer));
  };
  const CallTicket ticket = send_(std::move(task), std::move(done));
  *is_taken = true;
  bool is_cancelled = false;
  {
    const std::lock_guard lock(mutex_);
    ticket_ = ticket;
    is_cancelled = is_cancelled_;
  }
  if (!is_cancelled) return;
  if (const auto hub = hub_.lock()) hub->cancel(ticket);
}

bool ResultTask::wait_for_room() {
  const auto hub = hub_.lock();
  if (!hub) return false;
  std::unique_lock lock(mutex_);
  if (is_cancelled_) {
    lock.unlock();
    on_answer(cancelled_early());
    return true;
  }
  waits_for_room_ = true;
  lock.unlock();
  hub->run_after(room_turn, [self = shared_from_this()] {
    {
      const std::lock_guard inner(self->mutex_);
      if (!std::exchange(self->waits_for_room_, false)) return;
    }
    self->submit(true);
  });
  return true;
}

Error ResultTask::cancelled_early() const {
  return fail(ErrorCode::cancelled, "task {} was cancelled before it ran again",
              TaskFunctions::name_of(task_.function));
}

void ResultTask::on_answer(Result<Bytes> answer) {
  auto decoded = answer.ok() ? decode<task_detail::ObjectAnswer>(*answer)
                             : Result<task_detail::ObjectAnswer>(std::move(answer).error());
  const auto hub = hub_.lock();
  const auto store = hub ? hub->objects() : nullptr;
  // Else it is there already, computed by a worker whose answer did not come: this answer is not
  // taken, and the object may be lost and computed again.
  const bool is_pending = store && store->is_pending(object_.id);
  Kept garbage;  // destroyed without the lock
  std::optional<Error> lost;
  {
    const std::lock_guard lock(mutex_);
    is_under_way_ = false;
    ticket_ = {};
    lost = std::exchange(lost_, std::nullopt);
    const bool is_held = decoded.ok() && decoded->is_held;
    const bool may_run_again = retries_left_ != 0 && (is_held || (store && !is_pending));
    if (!may_run_again) {
      garbage.swap(kept_);
      task_.arguments = {};
    }
  }
  if (!decoded.ok()) return fulfil(std::move(decoded).error());
  if (!decoded->is_held) return fulfil(to_object_(std::move(decoded->value), hub_));
  // The holder may have died before its answer came.
  if (lost && store && store->is_pending(object_.id)) recompute(*lost);
}

void ResultTask::fulfil(Result<EncodedValue> value) {
  const auto hub = hub_.lock();
  const auto store = hub ? hub->objects() : nullptr;
  if (!store) return;
  if (!value.ok()) return store->fulfil(object_.id, std::move(value).error(), {});
  store->fulfil(object_.id, std::move(value->bytes), std::move(value->kept));
}

void ResultTask::recompute(const Error& why) {
  bool runs_again = false;
  {
    const std::lock_guard lock(mutex_);
    if (is_under_way_) {
      lost_ = why;
      return;
    }
    runs_again = retries_left_ != 0 && !is_cancelled_;
    if (runs_again && retries_left_ > 0) --retries_left_;
  }
  if (runs_again) {
    log::info("task {} runs again: {}", TaskFunctions::name_of(task_.function), why.message);
    return submit(true);
  }
  fulfil(fail(ErrorCode::object_lost, "{}; task {} is not run again (max_retries {})", why.message,
              TaskFunctions::name_of(task_.function), task_.options.max_retries));
}

void ResultTask::cancel() {
  CallTicket ticket;
  bool is_with_nobody = false;
  {
    const std::lock_guard lock(mutex_);
    is_cancelled_ = true;
    is_with_nobody = std::exchange(waits_for_room_, false);
    ticket = ticket_;
  }
  if (is_with_nobody) return on_answer(cancelled_early());
  if (const auto hub = hub_.lock()) hub->cancel(ticket);
}

}  // namespace troupe
