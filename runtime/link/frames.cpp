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
  bytes_ = *owner;
  owner_ = std::move(owner);
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
  queued_bytes_ += length_bytes + frame.bytes().size();
  frames_.push_back({std::move(frame), 0});
}

std::span<const std::byte> FrameQueue::front() {
  if (!front_.empty() || frames_.empty()) return front_;
  Entry& first = frames_.front();
  const auto bytes = first.frame.bytes();
  if (first.taken >= length_bytes && bytes.size() + length_bytes - first.taken >= piece_bytes) {
    front_ = bytes.subspan(first.taken - length_bytes);
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
    const auto bytes = entry.frame.bytes();
    const auto length = static_cast<std::uint32_t>(bytes.size());
    const auto head = std::as_bytes(std::span(&length, 1));
    for (const auto part : {head, bytes}) {
      const std::size_t before = part.data() == head.data() ? 0 : length_bytes;
      const std::size_t from = entry.taken - std::min(entry.taken, before);
      if (from >= part.size()) continue;
      const std::size_t count = std::min(part.size() - from, piece_bytes - piece_.size());
      piece_.insert(piece_.end(), part.begin() + static_cast<std::ptrdiff_t>(from),
                    part.begin() + static_cast<std::ptrdiff_t>(from + count));
      entry.taken += count;
    }
    if (entry.taken < length_bytes + bytes.size()) break;
    frames_.pop_front();
  }
  front_ = piece_;
}

void FrameQueue::sent(std::size_t bytes) {
  queued_bytes_ -= bytes;
  front_ = front_.subspan(bytes);
  if (!front_.empty() || !front_is_frame_) return;
  front_is_frame_ = false;
  frames_.pop_front();
}

}  // namespace troupe
