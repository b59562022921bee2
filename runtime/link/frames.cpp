#include "runtime/link/frames.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace troupe {
namespace {

constexpr std::size_t length_bytes = sizeof(std::uint32_t);
/// Larger ones are not kept; frames of up to a 64th do not use one.
constexpr std::size_t max_spare_bytes = std::size_t{512} << 10;

}  // namespace

LinkFrame::LinkFrame(std::vector<std::byte> bytes) {
  auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  body_ = *owner;
  owner_ = std::move(owner);
}

void LinkFrame::copy_borrowed() {
  if (owner_ != nullptr) return;
  auto copy = std::make_shared<const std::vector<std::byte>>(body_.begin(), body_.end());
  body_ = *copy;
  owner_ = std::move(copy);
}

std::span<std::byte> FrameReader::room() {
  if (!has_length()) return std::span(length_).subspan(length_filled_);
  return std::span(frame_).subspan(frame_filled_);
}

Result<void> FrameReader::filled(std::size_t bytes) {
  if (has_length()) {
    frame_filled_ += bytes;
    return {};
  }
  length_filled_ += bytes;
  if (!has_length()) return {};
  std::uint32_t length = 0;
  std::memcpy(&length, length_.data(), sizeof length);
  if (length > max_frame_bytes_) {
    return fail(ErrorCode::corrupt_data, "a frame of {} bytes, the limit is {}", length,
                max_frame_bytes_);
  }
  if (length > max_spare_bytes / 64) frame_ = std::exchange(spare_, {});
  frame_.resize(length);
  return {};
}

bool FrameReader::take(std::vector<std::byte>& frame) {
  if (!has_length() || frame_filled_ != frame_.size()) return false;
  std::swap(frame, frame_);
  if (frame_.size() > spare_.size() && frame_.capacity() <= max_spare_bytes) {
    spare_ = std::move(frame_);
  }
  frame_.clear();
  length_filled_ = 0;
  frame_filled_ = 0;
  return true;
}

void FrameQueue::push(LinkFrame frame) {
  queued_bytes_ += length_bytes + frame.size();
  frames_.push_back({std::move(frame), 0});
}

std::span<const std::byte> FrameQueue::front() {
  if (!front_.empty() || frames_.empty()) return front_;
  Entry& first = frames_.front();
  const std::size_t before_body = length_bytes + first.frame.head().size();
  const auto body = first.frame.body();
  if (first.taken >= before_body && body.size() + before_body - first.taken >= piece_bytes) {
    front_ = body.subspan(first.taken - before_body);
    front_is_frame_ = true;
    return front_;
  }
  pack();
  return front_;
}

void FrameQueue::pack() {
  piece_.clear();
  while (!frames_.empty() && piece_.size() < piece_bytes) {
    Entry& entry = frames_.front();
    const auto length = static_cast<std::uint32_t>(entry.frame.size());
    std::size_t before = 0;
    for (const auto part :
         {std::as_bytes(std::span(&length, 1)), entry.frame.head(), entry.frame.body()}) {
      const std::size_t from = entry.taken - std::min(entry.taken, before);
      before += part.size();
      if (from >= part.size()) continue;
      const std::size_t count = std::min(part.size() - from, piece_bytes - piece_.size());
      piece_.insert(piece_.end(), part.begin() + static_cast<std::ptrdiff_t>(from),
                    part.begin() + static_cast<std::ptrdiff_t>(from + count));
      entry.taken += count;
    }
    if (entry.taken < length_bytes + length) break;
    frames_.pop_front();
  }
  front_ = piece_;
}

void FrameQueue::copy_borrowed() {
  const auto taken =
      front_is_frame_ ? front_.data() - frames_.front().frame.body().data() : std::ptrdiff_t{0};
  for (Entry& entry : frames_) entry.frame.copy_borrowed();
  if (front_is_frame_) {
    front_ = frames_.front().frame.body().subspan(static_cast<std::size_t>(taken));
  }
}

void FrameQueue::sent(std::size_t bytes) {
  queued_bytes_ -= bytes;
  sent_bytes_ += bytes;
  front_ = front_.subspan(bytes);
  if (!front_.empty() || !front_is_frame_) return;
  front_is_frame_ = false;
  frames_.pop_front();
}

}  // namespace troupe
