#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// The bytes of one frame to be sent: a head, which may be empty, and a body.
class LinkFrame {
 public:
  /// Takes the bytes over.
  explicit LinkFrame(std::vector<std::byte> bytes);
  /// Borrows bytes that stay unchanged as long as `owner` lives.
  LinkFrame(std::span<const std::byte> bytes, std::shared_ptr<const void> owner)
      : body_(bytes), owner_(std::move(owner)) {}
  /// Borrows `body`, which must stay unchanged until the frame is sent or copy_borrowed().
  LinkFrame(std::vector<std::byte> head, std::span<const std::byte> body)
      : head_(std::move(head)), body_(body) {}

  std::span<const std::byte> head() const { return head_; }
  std::span<const std::byte> body() const { return body_; }
  std::size_t size() const { return head_.size() + body_.size(); }
  /// Replaces a body without an owner by a copy.
  void copy_borrowed();

 private:
  std::vector<std::byte> head_;
  std::span<const std::byte> body_;
  std::shared_ptr<const void> owner_;
};

/// Cuts a stream of bytes into frames: a little-endian u32 length and that many bytes. A frame's
/// bytes are read directly to their final place. Not synchronised.
class FrameReader {
 public:
  explicit FrameReader(std::size_t max_frame_bytes) : max_frame_bytes_(max_frame_bytes) {}

  /// Returns where to read the stream's next bytes; never empty, valid until filled() or take().
  std::span<std::byte> room();
  /// Notes that the first `bytes` of room() are read. Errors: corrupt_data for a frame above the
  /// limit.
  Result<void> filled(std::size_t bytes);
  /// Moves a whole frame to `frame` and returns true if there is one; to be called after each
  /// filled(). What was in `frame` becomes memory for a later one.
  bool take(std::vector<std::byte>& frame);

 private:
  bool has_length() const { return length_filled_ == length_.size(); }

  const std::size_t max_frame_bytes_;
  std::array<std::byte, 4> length_{};
  std::size_t length_filled_ = 0;
  std::vector<std::byte> frame_;
  std::size_t frame_filled_ = 0;
  std::vector<std::byte> spare_;  ///< resizing it to what it was fills nothing with zeros
};

/// Frames waiting to be sent. Small frames are packed into one piece, so that they share a TLS
/// record; of a large one only the first piece is copied. Not synchronised.
class FrameQueue {
 public:
  static constexpr std::size_t piece_bytes = std::size_t{16} << 10;  ///< a TLS record's payload

  /// Queues a frame, which must be shorter than 4 GiB.
  void push(LinkFrame frame);
  /// Returns the bytes to write next, the same until sent() has accounted for all of them, whatever
  /// is pushed meanwhile; empty when the queue is. A frame's memory is not released before.
  std::span<const std::byte> front();
  void sent(std::size_t bytes);
  /// Makes the queue independent of memory that its frames borrow without an owner; front() moves.
  void copy_borrowed();

  bool empty() const { return queued_bytes_ == 0; }
  /// Bytes not sent yet, lengths included.
  std::size_t queued_bytes() const { return queued_bytes_; }
  /// All bytes sent so far, counted alike.
  std::uint64_t sent_bytes() const { return sent_bytes_; }

 private:
  void pack();

  struct Entry {
    LinkFrame frame;
    std::size_t taken = 0;  ///< bytes of length and frame already copied into pieces
  };
  std::deque<Entry> frames_;
  std::vector<std::byte> piece_;
  std::span<const std::byte> front_;  ///< part of piece_, or of the first frame
  bool front_is_frame_ = false;
  std::size_t queued_bytes_ = 0;
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace troupe
