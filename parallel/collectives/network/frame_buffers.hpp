#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

/// Buffers of frames, used again: fresh memory costs more than what is copied into it. Any thread;
/// held by a shared pointer, which its buffers keep.
class FrameBuffers : public std::enable_shared_from_this<FrameBuffers> {
 public:
  using Buffer = std::vector<std::byte>;

  /// One that was given back, of any size, or an empty one.
  Buffer take() {
    const std::lock_guard lock(mutex_);
    if (spare_.empty()) return {};
    Buffer buffer = std::move(spare_.back());
    spare_.pop_back();
    return buffer;
  }
  /// Owns `buffer` until it is given back.
  std::shared_ptr<const Buffer> own(Buffer buffer) {
    return {new Buffer(std::move(buffer)), [self = shared_from_this()](const Buffer* done) {
              std::unique_ptr<Buffer> buffer(const_cast<Buffer*>(done));
              self->give(std::move(*buffer));
            }};
  }

 private:
  static constexpr std::size_t max_spare = 16;

  void give(Buffer buffer) {
    const std::lock_guard lock(mutex_);
    if (spare_.size() < max_spare) spare_.push_back(std::move(buffer));
  }

  std::mutex mutex_;
  std::vector<Buffer> spare_;
};

}  // namespace troupe
