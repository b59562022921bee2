#include "runtime/actor/async/stream_inbox.hpp"

#include <algorithm>
#include <iterator>
#include <random>

#include "runtime/base/deadline.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds first_retry{50}, longest_retry{2000};

StreamId draw_id() {
  std::random_device random;
  return (StreamId{random()} << 32) | random();
}

}  // namespace

StreamInbox::StreamInbox(Error error) : end_(std::move(error)) {}

StreamInbox::StreamInbox(const std::shared_ptr<CallHub>& hub, ActorAddress actor, Decode decode,
                         StreamWindow window)
    : hub_(hub),
      actor_(std::move(actor)),
      decode_(decode),
      window_(window),
      id_(draw_id()),
      is_asking_(true) {}

std::shared_ptr<StreamInbox> StreamInbox::open(const std::shared_ptr<CallHub>& hub,
                                               ActorAddress actor, std::uint16_t method,
                                               const Bytes& arguments,
                                               std::vector<std::shared_ptr<const void>> kept,
                                               Decode decode, StreamWindow window) {
  auto inbox = std::make_shared<StreamInbox>(hub, std::move(actor), decode, window);
  Encoder encoder;
  encoder(StreamOpen{inbox->id_, window});
  encoder.put_raw(arguments.data(), arguments.size());
  hub->call(inbox->actor_, method, encoder.take(),
            [inbox, kept = std::move(kept)](Result<Bytes> answer) {
              inbox->on_answer(std::move(answer));
            });
  return inbox;
}

void StreamInbox::on_answer(Result<Bytes> answer) {
  auto batch = answer.ok() ? decode<StreamBatch>(*answer) : Result<StreamBatch>(answer.error());
  std::vector<Item> items;  // destroyed without the lock
  if (batch.ok()) {
    for (Bytes& bytes : batch->items) {
      auto decoded = decode_ == nullptr ? nullptr : decode_(bytes, hub_);
      items.push_back({std::move(bytes), std::move(decoded)});
    }
  }
  std::shared_ptr<DueCallback> listener;
  {
    std::lock_guard lock(mutex_);
    is_asking_ = false;
    if (batch.ok()) {
      if (!is_closed_) std::ranges::move(items, std::back_inserter(items_));
      if (batch->is_error) {
        end_ = Error{batch->code, std::move(batch->message)};
      } else if (batch->is_end) {
        end_.emplace();
      }
    } else if (batch.error().code == ErrorCode::resource_exhausted && told_read_ > 0) {
      problem_ = batch.error();
    } else {
      end_ = std::move(batch).error();
    }
    changed_.notify_all();
    listener = std::move(listener_);
    listener_ = nullptr;
  }
  if (listener) listener->run_due();
}

Result<std::optional<StreamInbox::Item>> StreamInbox::take(std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  const bool asks_again = problem_.has_value() && items_.empty();
  if (!wait_for(changed_, lock, timeout, [this] { return is_ready_locked(); })) {
    return fail(ErrorCode::timed_out, "no item of the stream of actor '{}' within {} ms",
                actor_.name, std::chrono::duration_cast<milliseconds>(timeout).count());
  }
  if (!items_.empty()) {
    std::optional<Item> item = std::move(items_.front());
    items_.pop_front();
    ++read_;
    pull_if_due(std::move(lock));
    return item;
  }
  if (end_) {
    if (!end_->ok()) return end_->error();
    return std::optional<Item>();
  }
  const Error problem = *std::exchange(problem_, std::nullopt);
  if (asks_again) pull_if_due(std::move(lock));
  return problem;
}

bool StreamInbox::is_ready() {
  std::lock_guard lock(mutex_);
  return is_ready_locked();
}

void StreamInbox::on_ready(std::shared_ptr<DueCallback> listener) {
  {
    std::lock_guard lock(mutex_);
    if (!is_ready_locked()) {
      listener_ = std::move(listener);
      return;
    }
  }
  listener->run_due();
}

void StreamInbox::pull_if_due(std::unique_lock<std::mutex> lock) {
  const std::uint64_t half = std::max<std::uint64_t>(1, window_.items / 2);
  const bool is_due = items_.empty() || read_ - told_read_ >= half;
  if (!is_due || is_asking_ || end_ || is_closed_) return;
  is_asking_ = true;
  told_read_ = read_;
  const StreamPull pull{id_, read_};
  lock.unlock();
  const auto hub = hub_.lock();
  if (!hub) {
    return on_answer(fail(ErrorCode::cancelled, "this process is shutting down"));
  }
  hub->call(
      actor_, stream_pull_method, encode(pull),
      [self = shared_from_this()](Result<Bytes> answer) { self->on_answer(std::move(answer)); });
}

void StreamInbox::close() {
  std::shared_ptr<DueCallback> listener;
  std::deque<Item> items;  // destroyed without the lock
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(is_closed_, true)) return;
    listener.swap(listener_);
    items.swap(items_);
    if (end_) return;
  }
  send_close(hub_, actor_, id_, first_retry);
}

void StreamInbox::send_close(const std::weak_ptr<CallHub>& weak, const ActorAddress& actor,
                             StreamId id, milliseconds again_after) {
  const auto hub = weak.lock();
  if (!hub) return;
  // As a callback it fails at once where it would have to wait for room on the link.
  hub->run_after(milliseconds(0), [weak, actor, id, again_after] {
    const auto held = weak.lock();
    if (!held) return;
    held->call(actor, stream_close_method, encode(StreamClose{id}),
               [weak, actor, id, again_after](const Result<Bytes>& answer) {
                 if (answer.ok() || answer.error().code != ErrorCode::resource_exhausted) return;
                 const auto still_held = weak.lock();
                 if (!still_held) return;
                 still_held->run_after(again_after, [weak, actor, id, again_after] {
                   send_close(weak, actor, id, std::min(longest_retry, 2 * again_after));
                 });
               });
  });
}

}  // namespace troupe
