#include "runtime/channel/shm_broadcast.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t page_bytes = 4096;
constexpr int max_readers = 64;
constexpr std::uint64_t unit = 8;
constexpr std::uint64_t skip_to_start = ~std::uint64_t{0};  // as a length: the rest of the ring is
                                                            // unused

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t to) { return (bytes + to - 1) / to * to; }

// Ring bytes that a message occupies: its length, and itself padded so the next length is aligned.
std::uint64_t occupied(std::size_t message_bytes) { return unit + round_up(message_bytes, unit); }

}  // namespace

/// At the start of the region, one page; the ring is the rest. Positions count bytes since the
/// start and never wrap; the ring offset is the position modulo the ring's size.
struct ShmBroadcastRing {
  struct alignas(64) Reader {
    std::atomic<std::uint64_t> position;  // everything before it has been released
    std::atomic<std::uint32_t> attached;
  };

  std::atomic<std::uint32_t> readers;  // 0 until the first end attaches
  std::atomic<std::uint32_t> writer_attached;
  std::atomic<std::uint32_t> aborted;
  alignas(64) std::atomic<std::uint64_t> written;
  SharedEvent has_message;
  SharedEvent has_room;

  Reader& reader(int index) { return reinterpret_cast<Reader*>(this + 1)[index]; }

  static std::size_t head_bytes(int readers) {
    return round_up(sizeof(ShmBroadcastRing) + static_cast<std::size_t>(readers) * sizeof(Reader),
                    page_bytes);
  }
  std::uint64_t slowest() {
    std::uint64_t least = ~std::uint64_t{0};
    const int count = static_cast<int>(readers.load(std::memory_order_relaxed));
    for (int i = 0; i < count; ++i) {
      least = std::min(least, reader(i).position.load(std::memory_order_acquire));
    }
    return least;
  }
  bool is_aborted() const { return aborted.load(std::memory_order_acquire) != 0; }
  void abort() {
    aborted.store(1, std::memory_order_seq_cst);
    has_message.notify();
    has_room.notify();
  }
};

namespace {

std::uint64_t ring_bytes(const SharedMemory& region, int readers) {
  return region.bytes().size() - ShmBroadcastRing::head_bytes(readers);
}

std::byte* ring_start(const SharedMemory& region, int readers) {
  return region.bytes().data() + ShmBroadcastRing::head_bytes(readers);
}

ShmBroadcastRing& ring_of(const SharedMemory& region) {
  return *reinterpret_cast<ShmBroadcastRing*>(region.bytes().data());
}

Result<void> join(const SharedMemory& region, int readers) {
  if (readers < 1 || readers > max_readers) {
    return fail(ErrorCode::invalid_argument, "broadcast ring: {} readers, allowed are 1 to {}",
                readers, max_readers);
  }
  const std::size_t least = ShmBroadcastRing::head_bytes(readers) + page_bytes;
  if (region.bytes().size() < least || region.bytes().size() % page_bytes != 0) {
    return fail(ErrorCode::invalid_argument,
                "broadcast ring: a region of {} bytes for {} readers, who need pages, {} bytes or "
                "more",
                region.bytes().size(), readers, least);
  }
  std::uint32_t made_for = 0;
  const auto wanted = static_cast<std::uint32_t>(readers);
  if (!ring_of(region).readers.compare_exchange_strong(made_for, wanted) && made_for != wanted) {
    return fail(ErrorCode::invalid_argument, "broadcast ring: made for {} readers, not {}",
                made_for, readers);
  }
  return {};
}

// Waits for `ready`. Errors: timeout, cancelled.
template <class Ready>
Result<void> wait_for(ShmBroadcastRing& ring, SharedEvent& event, std::atomic<bool>& interrupted,
                      Ready ready, Deadline& deadline, SpinBudget spin, std::string_view what) {
  const bool woken = event.wait(
      [&] { return ready() || ring.is_aborted() || interrupted.load(std::memory_order_acquire); },
      deadline, spin);
  if (ring.is_aborted()) return fail(ErrorCode::cancelled, "broadcast ring: {}: aborted", what);
  if (!woken) return fail(ErrorCode::timed_out, "broadcast ring: {}: timeout", what);
  if (ready()) return {};
  interrupted.store(false, std::memory_order_release);
  return fail(ErrorCode::cancelled, "broadcast ring: {}: interrupted", what);
}

}  // namespace

std::size_t shm_broadcast_bytes(int readers, std::size_t ring_bytes) {
  return ShmBroadcastRing::head_bytes(readers) + round_up(ring_bytes, page_bytes);
}

Result<ShmBroadcastWriter> ShmBroadcastWriter::attach(SharedMemory region, int readers) {
  TROUPE_CHECK(join(region, readers));
  ShmBroadcastWriter writer(std::move(region), readers);
  if (writer.ring().writer_attached.exchange(1) != 0) {
    return fail(ErrorCode::already_exists, "broadcast ring: it has a writer");
  }
  return writer;
}

ShmBroadcastWriter::ShmBroadcastWriter(SharedMemory region, int readers)
    : region_(std::move(region)),
      readers_(readers),
      spin_(SpinBudget::for_waiters(readers + 1)),
      interrupted_(std::make_unique<std::atomic<bool>>(false)) {}

ShmBroadcastRing& ShmBroadcastWriter::ring() const { return ring_of(region_); }

std::size_t ShmBroadcastWriter::max_message_bytes() const {
  return ring_bytes(region_, readers_) / 2 - unit;
}

Result<void> ShmBroadcastWriter::send(std::span<const std::byte> bytes, Deadline deadline) {
  if (bytes.size() > max_message_bytes()) {
    return fail(ErrorCode::invalid_argument, "broadcast ring: {} bytes, the limit is {}",
                bytes.size(), max_message_bytes());
  }
  ShmBroadcastRing& shared = ring();
  const std::uint64_t size = ring_bytes(region_, readers_);
  std::byte* start = ring_start(region_, readers_);
  std::uint64_t position = shared.written.load(std::memory_order_relaxed);
  const std::uint64_t to_end = size - position % size;
  const bool skip = to_end < occupied(bytes.size());
  const std::uint64_t end = position + (skip ? to_end : 0) + occupied(bytes.size());
  TROUPE_CHECK(wait_for(
      shared, shared.has_room, *interrupted_, [&] { return end - shared.slowest() <= size; },
      deadline, spin_, "send"));
  if (skip) {
    std::memcpy(start + position % size, &skip_to_start, unit);
    position += to_end;
  }
  const std::uint64_t length = bytes.size();
  std::memcpy(start + position % size, &length, unit);
  if (length > 0) std::memcpy(start + position % size + unit, bytes.data(), length);
  shared.written.store(end, std::memory_order_release);
  shared.has_message.notify();
  return {};
}

void ShmBroadcastWriter::abort() { ring().abort(); }

void ShmBroadcastWriter::interrupt() {
  interrupted_->store(true, std::memory_order_release);
  ring().has_room.notify();
}

Result<ShmBroadcastReader> ShmBroadcastReader::attach(SharedMemory region, int readers, int index) {
  TROUPE_CHECK(join(region, readers));
  if (index < 0 || index >= readers) {
    return fail(ErrorCode::invalid_argument, "broadcast ring: reader {} of {}", index, readers);
  }
  if (ring_of(region).reader(index).attached.exchange(1) != 0) {
    return fail(ErrorCode::already_exists, "broadcast ring: reader {} has attached before", index);
  }
  return ShmBroadcastReader(std::move(region), readers, index);
}

ShmBroadcastReader::ShmBroadcastReader(SharedMemory region, int readers, int index)
    : region_(std::move(region)),
      readers_(readers),
      index_(index),
      spin_(SpinBudget::for_waiters(readers + 1)),
      interrupted_(std::make_unique<std::atomic<bool>>(false)) {}

ShmBroadcastRing& ShmBroadcastReader::ring() const { return ring_of(region_); }

void ShmBroadcastReader::give_back(std::uint64_t bytes) {
  if (bytes == 0) return;
  auto& position = ring().reader(index_).position;
  position.store(position.load(std::memory_order_relaxed) + bytes, std::memory_order_release);
  ring().has_room.notify();
}

Result<std::span<const std::byte>> ShmBroadcastReader::receive(Deadline deadline) {
  give_back(std::exchange(held_bytes_, 0));
  ShmBroadcastRing& shared = ring();
  const std::uint64_t size = ring_bytes(region_, readers_);
  std::byte* start = ring_start(region_, readers_);
  const std::uint64_t position = shared.reader(index_).position.load(std::memory_order_relaxed);
  TROUPE_CHECK(wait_for(
      shared, shared.has_message, *interrupted_,
      [&] { return shared.written.load(std::memory_order_acquire) != position; }, deadline, spin_,
      "receive"));
  const std::uint64_t available = shared.written.load(std::memory_order_acquire) - position;
  std::uint64_t skipped = 0;
  std::uint64_t length = 0;
  std::memcpy(&length, start + position % size, unit);
  if (length == skip_to_start) {  // a skip and its message are published together
    skipped = size - position % size;
    std::memcpy(&length, start, unit);
  }
  const std::uint64_t at = (position + skipped) % size;
  if (length > size / 2 || skipped + occupied(length) > available) {
    return fail(ErrorCode::corrupt_data, "broadcast ring: a message of {} bytes, {} are there",
                length, available);
  }
  held_bytes_ = skipped + occupied(length);
  return std::span<const std::byte>(start + at + unit, length);
}

void ShmBroadcastReader::abort() { ring().abort(); }

void ShmBroadcastReader::interrupt() {
  interrupted_->store(true, std::memory_order_release);
  ring().has_message.notify();
}

}  // namespace troupe
