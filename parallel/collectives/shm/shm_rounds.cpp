#include "parallel/collectives/shm/shm_rounds.hpp"

#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace troupe {

namespace {

constexpr std::size_t page_bytes = 4096;
constexpr int max_ranks = 64;

}  // namespace

struct ShmRounds::Header {
  std::atomic<std::uint64_t> layout;   // 0 until the first rank attaches
  std::atomic<std::uint32_t> aborted;  // separate from `arrived`: read by all, written once
  alignas(64) std::atomic<std::uint64_t> arrived;  // arrivals of ranks, over all rounds
  SharedEvent all_arrived;
};

struct alignas(64) ShmRounds::RankLine {
  std::atomic<std::uint32_t> attached;
  std::atomic<std::uint64_t> rounds;    // rounds that this rank has entered
  std::array<CollectiveCall, 2> calls;  // of the last two rounds, by parity
  SharedEvent bell;
};

namespace {

std::size_t round_up(std::size_t bytes) {
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

// What all ranks must agree on before they write to the region.
struct Layout {
  std::uint64_t size;
  std::uint64_t tail_pages;

  static Layout unpack(std::uint64_t word) { return {word % 256, word / 256}; }
  std::uint64_t pack() const { return tail_pages * 256 + size; }
};

}  // namespace

std::size_t ShmRounds::head_bytes(int size) {
  return round_up(sizeof(Header) + static_cast<std::size_t>(size) * sizeof(RankLine));
}

std::size_t ShmRounds::region_bytes(int size, std::size_t slot_bytes) {
  return head_bytes(size) + 2 * static_cast<std::size_t>(size) * round_up(slot_bytes);
}

Result<ShmRounds> ShmRounds::attach(SharedMemory region, int rank, int size,
                                    std::size_t tail_bytes) {
  if (size < 1 || size > max_ranks || rank < 0 || rank >= size) {
    return fail(ErrorCode::invalid_argument,
                "collectives: rank {} of {} ranks (1 to {} ranks share a region)", rank, size,
                max_ranks);
  }
  const std::size_t least = region_bytes(size, 1) + tail_bytes;
  if (region.bytes().size() < least) {
    return fail(ErrorCode::invalid_argument,
                "collectives: {} bytes of shared memory are too few for {} ranks, who need {}",
                region.bytes().size(), size, least);
  }
  ShmRounds rounds(std::move(region), rank, size, tail_bytes);
  const Layout layout{static_cast<std::uint64_t>(size), tail_bytes / page_bytes};
  std::uint64_t found = 0;
  if (!rounds.header().layout.compare_exchange_strong(found, layout.pack()) &&
      found != layout.pack()) {
    return fail(ErrorCode::invalid_argument,
                "collectives: rank {} expects {} ranks and {} bytes for messages between two, the "
                "region serves {} ranks with {} bytes",
                rank, size, tail_bytes, Layout::unpack(found).size,
                Layout::unpack(found).tail_pages * page_bytes);
  }
  if (rounds.line(rank).attached.exchange(1) != 0) {
    return fail(ErrorCode::already_exists, "collectives: rank {} of {} has attached before", rank,
                size);
  }
  return rounds;
}

ShmRounds::ShmRounds(SharedMemory region, int rank, int size, std::size_t tail_bytes)
    : region_(std::move(region)),
      rank_(rank),
      size_(size),
      tail_bytes_(tail_bytes),
      slot_bytes_((region_.bytes().size() - tail_bytes - head_bytes(size)) /
                  (2 * static_cast<unsigned>(size)) / page_bytes * page_bytes),
      spin_(SpinBudget::for_waiters(size)) {}

ShmRounds::Header& ShmRounds::header() const {
  return *reinterpret_cast<Header*>(region_.bytes().data());
}

ShmRounds::RankLine& ShmRounds::line(int r) const {
  return reinterpret_cast<RankLine*>(region_.bytes().data() + sizeof(Header))[r];
}

std::span<std::byte> ShmRounds::slot(int r, std::uint64_t round) const {
  const std::size_t index = 2 * static_cast<std::size_t>(r) + round % 2;
  return region_.bytes().subspan(head_bytes(size_) + index * slot_bytes_, slot_bytes_);
}

Result<void> ShmRounds::begin(CollectiveCall call, std::chrono::milliseconds timeout) {
  call_ = call;
  timeout_ = timeout;
  deadline_ = deadline_in(timeout);
  if (aborted()) return cancelled();
  return {};
}

Result<void> ShmRounds::meet() {
  Header& shared = header();
  RankLine& own = line(rank_);
  own.calls[round_ % 2] = call_;
  own.rounds.store(round_ + 1, std::memory_order_relaxed);

  // Other ranks may already be one round ahead, hence >=; none can be two ahead.
  const std::uint64_t all = (round_ + 1) * static_cast<std::uint64_t>(size_);
  if (shared.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == all) {
    shared.all_arrived.notify();
  }
  const auto complete = [&] { return shared.arrived.load(std::memory_order_acquire) >= all; };
  const bool in_time =
      shared.all_arrived.wait([&] { return complete() || aborted(); }, deadline_, spin_);
  // A round that all have entered succeeds on all of them, even if one aborts meanwhile: the slots
  // stay as they are until this rank, too, enters the next round.
  if (!complete()) {
    if (in_time) return cancelled();
    Error error = missing_ranks();
    abort();
    return error;
  }
  ++round_;
  return check_agreement();
}

void ShmRounds::abort() {
  header().aborted.store(1, std::memory_order_seq_cst);
  header().all_arrived.notify();
  for (int r = 0; r < size_; ++r) bell(r).notify();
}

bool ShmRounds::aborted() const { return header().aborted.load(std::memory_order_acquire) != 0; }

SharedEvent& ShmRounds::bell(int r) const { return line(r).bell; }

Error ShmRounds::cancelled() const {
  return fail(ErrorCode::cancelled, "collectives: {} on rank {} of {}: the group was aborted",
              describe(call_), rank_, size_);
}

Error ShmRounds::missing_ranks() const {
  std::vector<int> missing;
  for (int r = 0; r < size_; ++r) {
    if (line(r).rounds.load(std::memory_order_acquire) <= round_) missing.push_back(r);
  }
  return fail(ErrorCode::timed_out,
              "collectives: {} on rank {} of {}: rank {} did not come within {} ms",
              describe(call_), rank_, size_, fmt::join(missing, ", "), timeout_.count());
}

Result<void> ShmRounds::check_agreement() {
  for (int r = 0; r < size_; ++r) {
    const CollectiveCall theirs = line(r).calls[(round_ - 1) % 2];
    if (theirs == call_) continue;
    abort();
    return fail(ErrorCode::invalid_argument, "collectives: rank {} calls {}, but rank {} calls {}",
                rank_, describe(call_), r, describe(theirs));
  }
  return {};
}

}  // namespace troupe
