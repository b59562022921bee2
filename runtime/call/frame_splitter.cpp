#include "runtime/call/frame_splitter.hpp"

namespace troupe {

std::span<std::byte> FrameSplitter::room(std::span<std::byte> scratch) {
  const auto rest = std::span(frame_).subspan(frame_filled_);
  return rest.size() >= scratch.size() ? rest : scratch;
}

Result<void> FrameSplitter::consume(std::span<const std::byte> bytes, const OnFrame& on_frame) {
  if (bytes.data() == frame_.data() + frame_filled_) {  // read in place
    frame_filled_ += bytes.size();
    return frame_filled_ == frame_.size() ? finish_frame(on_frame) : Result<void>();
  }
  while (!bytes.empty()) {
    if (length_filled_ < length_.size()) {
      const std::size_t taken = std::min(length_.size() - length_filled_, bytes.size());
      std::memcpy(length_.data() + length_filled_, bytes.data(), taken);
      length_filled_ += taken;
      bytes = bytes.subspan(taken);
      if (length_filled_ < length_.size()) return {};
      TROUPE_CHECK(begin_frame());
    }
    const std::size_t taken = std::min(frame_.size() - frame_filled_, bytes.size());
    if (taken > 0) std::memcpy(frame_.data() + frame_filled_, bytes.data(), taken);
    frame_filled_ += taken;
    bytes = bytes.subspan(taken);
    if (frame_filled_ == frame_.size()) TROUPE_CHECK(finish_frame(on_frame));
  }
  return {};
}

Result<void> FrameSplitter::begin_frame() {
  std::uint32_t length = 0;
  std::memcpy(&length, length_.data(), sizeof length);
  if (length == 0 || length > limit_) {
    return fail(ErrorCode::corrupt_data, "a frame of {} bytes (the limit is {})", length, limit_);
  }
  frame_.resize(length);
  frame_filled_ = 0;
  return {};
}

Result<void> FrameSplitter::finish_frame(const OnFrame& on_frame) {
  length_filled_ = 0;
  frame_filled_ = 0;
  auto taken = on_frame(frame_);
  frame_.clear();
  return taken;
}

void FrameSplitter::reset() {
  length_filled_ = 0;
  frame_filled_ = 0;
  frame_.clear();
}

}  // namespace troupe
