#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/base/deadline.hpp"
#include "runtime/base/result.hpp"
#include "runtime/memory/futex.hpp"
#include "runtime/memory/shared_memory.hpp"

namespace troupe {

/// Layout of the region that a ShmBroadcastWriter and its readers share; private to them.
struct ShmBroadcastRing;

/// Bytes of a region for `readers` readers and a ring of `ring_bytes` (rounded up to 4 KiB).
std::size_t shm_broadcast_bytes(int readers, std::size_t ring_bytes);

/// The one writer of a broadcast within a node: every message reaches every reader, in order. The
/// ring is bounded: send() waits for the slowest reader. A zeroed SharedMemory region of
/// shm_broadcast_bytes() is ready for use; each process maps it and attaches its end, in any order.
///
/// A process that is gone shows as a timeout at the others. Threads: one at a time, except abort()
/// and interrupt().
class ShmBroadcastWriter {
 public:
  /// `readers` is the number of readers (1..64). Errors: invalid_argument if the region is too
  /// small or was laid out for another number of readers, already_exists for a second writer.
  static Result<ShmBroadcastWriter> attach(SharedMemory region, int readers);

  /// The largest message: half of the ring less 8 bytes, so that a message is always contiguous.
  std::size_t max_message_bytes() const;

  /// Copies the message into the ring for all readers. Errors: timed_out, cancelled (abort() by any
  /// end, or interrupt()), invalid_argument above max_message_bytes() (messages are not chunked).
  Result<void> send(std::span<const std::byte> bytes, Deadline deadline);

  /// Makes every end in every process return `cancelled` from now on. Callable from any thread.
  void abort();
  /// Makes the send() that waits, or the next that would wait, return `cancelled`. Callable from
  /// any thread.
  void interrupt();

 private:
  ShmBroadcastWriter(SharedMemory region, int readers);
  ShmBroadcastRing& ring() const;

  SharedMemory region_;
  int readers_;
  SpinBudget spin_;
  std::unique_ptr<std::atomic<bool>> interrupted_;
};

/// One of the readers.
class ShmBroadcastReader {
 public:
  /// `index` is this reader's number, 0 <= index < readers. Errors: see the writer's;
  /// already_exists if the number is taken.
  static Result<ShmBroadcastReader> attach(SharedMemory region, int readers, int index);

  /// Returns the next message, 8-byte aligned, in place in the ring: valid until the next
  /// receive(), which releases its space to the writer. Errors: timed_out, cancelled, corrupt_data.
  Result<std::span<const std::byte>> receive(Deadline deadline);

  /// See the writer's.
  void abort();
  void interrupt();

 private:
  ShmBroadcastReader(SharedMemory region, int readers, int index);
  ShmBroadcastRing& ring() const;

  void give_back(std::uint64_t bytes);

  SharedMemory region_;
  int readers_;
  int index_;
  SpinBudget spin_;
  std::uint64_t held_bytes_ = 0;  ///< the last returned message and its header
  std::unique_ptr<std::atomic<bool>> interrupted_;
};

}  // namespace troupe
