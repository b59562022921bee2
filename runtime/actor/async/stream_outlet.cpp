#include "runtime/actor/async/stream_outlet.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

void StreamOutlet::put(Bytes item, Encode encode) {
  unread_.push_back(item.size());
  unread_bytes_ += item.size();
  ready_.push_back({std::move(item), std::move(encode)});
  send();
}

void StreamOutlet::finish(Result<void> how) {
  if (end_) return;
  end_ = std::move(how);
  send();
}

std::coroutine_handle<> StreamOutlet::take_parked() {
  return has_room() && !end_ ? std::exchange(parked_, nullptr) : nullptr;
}

void StreamOutlet::pull(std::uint64_t read, CallReply answer) {
  refuse(fail(ErrorCode::invalid_argument, "the stream was asked for more by another call"));
  const std::uint64_t produced = read_ + unread_.size();
  for (; read_ < std::min(read, produced); ++read_) {
    unread_bytes_ -= unread_.front();
    unread_.pop_front();
  }
  waiting_ = std::move(answer);
  send();
}

void StreamOutlet::refuse(const Error& why) {
  if (const auto waiting = std::exchange(waiting_, CallReply())) waiting(why);
}

void StreamOutlet::send() {
  if (!waiting_ || (ready_.empty() && !end_)) return;
  StreamBatch batch;
  for (auto& [bytes, encode] : ready_) {
    batch.items.push_back(encode ? encode(hub_) : std::move(bytes));
  }
  ready_.clear();
  batch.is_end = is_delivered_ = end_.has_value();
  if (end_ && !end_->ok()) {
    batch.is_error = true;
    batch.code = end_->error().code;
    batch.message = end_->error().message;
  }
  std::exchange(waiting_, CallReply())(encode(batch));
}

}  // namespace troupe
