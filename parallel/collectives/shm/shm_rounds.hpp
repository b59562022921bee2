#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "parallel/collectives/collective_call.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/result.hpp"
#include "runtime/memory/futex.hpp"
#include "runtime/memory/shared_memory.hpp"

namespace troupe {

/// The rounds that all shared-memory collectives are built from. In a round every rank may fill its
/// own slot, then meet()s the others, and then may read every slot of that round until its own next
/// meet(). Each rank has two slots, used in turn: a rank that has left meeting k knows that all
/// others have entered it, and so are done with the slots of round k - 1, which are reused in round
/// k + 1. So one meeting per round is enough.
///
/// Meeting costs one atomic addition per rank, and one wake-up call by the last to arrive.
///
/// The end of the region, its tail, is for messages between two ranks (ShmMailboxes). They wait on
/// the bells here, which abort() rings too.
class ShmRounds {
 public:
  /// Bytes of a region without its tail for `size` ranks whose slots have `slot_bytes`, rounded up
  /// to pages.
  static std::size_t region_bytes(int size, std::size_t slot_bytes);
  /// See ShmCollectives::attach. `tail_bytes` (whole pages) are the same on all ranks; the slots
  /// get what is left of the region.
  static Result<ShmRounds> attach(SharedMemory region, int rank, int size, std::size_t tail_bytes);

  int rank() const { return rank_; }
  int size() const { return size_; }
  std::size_t slot_bytes() const { return slot_bytes_; }

  /// Begins a call: the timeout runs from here over all of its rounds.
  Result<void> begin(CollectiveCall call, std::chrono::milliseconds timeout);

  /// This rank's slot of the round that the next meet() closes; 64-byte aligned.
  std::span<std::byte> own_slot() const { return slot(rank_, round_); }
  /// Rank r's slot of the round that the last meet() closed.
  std::span<const std::byte> met_slot(int r) const { return slot(r, round_ - 1); }

  /// Publishes own_slot() and waits until every rank has. Errors: timed_out and cancelled;
  /// invalid_argument if a rank is in another call.
  Result<void> meet();

  /// Callable from any thread of any rank, at any time while this object lives.
  void abort();
  bool aborted() const;

  /// The last `tail_bytes` of the region, page aligned.
  std::span<std::byte> tail() const { return region_.bytes().last(tail_bytes_); }
  /// The event on which rank r sleeps while it waits for a change in the tail or for abort(). A
  /// rank that changes something that r may wait for notifies it.
  SharedEvent& bell(int r) const;
  SpinBudget spin() const { return spin_; }

 private:
  struct Header;
  struct RankLine;

  ShmRounds(SharedMemory region, int rank, int size, std::size_t tail_bytes);
  std::span<std::byte> slot(int r, std::uint64_t round) const;
  Header& header() const;
  RankLine& line(int r) const;
  static std::size_t head_bytes(int size);
  Error cancelled() const;
  Error missing_ranks() const;
  Result<void> check_agreement();

  SharedMemory region_;
  int rank_;
  int size_;
  std::size_t tail_bytes_;
  std::size_t slot_bytes_;
  SpinBudget spin_;
  std::uint64_t round_ = 0;
  CollectiveCall call_;
  std::chrono::milliseconds timeout_{0};
  Deadline deadline_{std::chrono::milliseconds(0)};
};

}  // namespace troupe
