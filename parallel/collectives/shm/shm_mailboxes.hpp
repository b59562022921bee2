#pragma once

#include <chrono>
#include <cstddef>
#include <span>

#include "parallel/collectives/shm/shm_rounds.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Messages between two ranks through shared memory: for every ordered pair a ring of bytes that
/// one writes and the other reads, without locks or other ranks. They are in the tail of a
/// ShmRounds, first all counters, then all rings. A message is its length, 8 bytes, and its bytes,
/// padded to 8; one larger than the ring passes through it in pieces.
///
/// One thread at a time sends and receives for a rank. Errors of both calls, after which the group
/// is aborted: timeout naming the other rank, cancelled after abort(), and for receive()
/// invalid_argument if the message has another length.
class ShmMailboxes {
 public:
  /// Bytes of a tail for the mailboxes of `size` ranks, each with `room` bytes rounded up to pages;
  /// whole pages.
  static std::size_t region_bytes(int size, std::size_t room);

  /// Makes the mailboxes of the rank of `rounds`, over its tail; `rounds` must outlive this object.
  explicit ShmMailboxes(ShmRounds& rounds);

  /// Returns when all of `message` is in the mailbox or already taken from it.
  Result<void> send(std::span<const std::byte> message, int to, std::chrono::milliseconds timeout);
  /// Receives the oldest message from `from`, which must have this length.
  Result<void> receive(std::span<std::byte> message, int from, std::chrono::milliseconds timeout);

 private:
  struct Counters;
  class Mailbox;
  class Wait;

  static std::size_t head_bytes(int size);
  Mailbox mailbox(int from, int to) const;

  ShmRounds& rounds_;
  std::size_t room_;
};

}  // namespace troupe
