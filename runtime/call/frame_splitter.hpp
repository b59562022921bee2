#pragma once

#include <array>
#include <functional>
#include <span>

#include "runtime/base/result.hpp"
#include "runtime/call/codec.hpp"

namespace troupe {

/// Splits a stream of bytes into frames: a little-endian u32 length, 1 to `limit`, and that many
/// bytes. A state machine without I/O; after an error it must be reset. Not synchronised.
class FrameSplitter {
 public:
  /// Takes a whole frame, which may be moved from. May call set_limit; an error ends the reading.
  using OnFrame = std::function<Result<void>(Bytes& frame)>;

  explicit FrameSplitter(std::size_t limit) : limit_(limit) {}

  /// Sets the limit for frames whose length has not been read yet.
  void set_limit(std::size_t limit) { limit_ = limit; }
  /// Where to read the next bytes: `scratch`, or the rest of a frame that is larger than scratch.
  std::span<std::byte> room(std::span<std::byte> scratch);
  /// Takes `bytes`, the first part of what room() returned. Errors: corrupt_data for a length out
  /// of bounds.
  Result<void> consume(std::span<const std::byte> bytes, const OnFrame& on_frame);
  /// Forgets an unfinished frame.
  void reset();

 private:
  Result<void> begin_frame();
  Result<void> finish_frame(const OnFrame& on_frame);

  std::size_t limit_;
  std::array<std::byte, 4> length_{};
  std::size_t length_filled_ = 0;
  Bytes frame_;
  std::size_t frame_filled_ = 0;
};

}  // namespace troupe
