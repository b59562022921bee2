#include "parallel/collectives/shm/shm_mailboxes.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

namespace troupe {

namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t unit = 8;  // lengths begin at multiples of it, so the ring's end cuts none

// How much is copied before the other rank is notified, so that a long message is copied in and out
// concurrently, and the pieces are still in a cache when they are copied out.
constexpr std::size_t piece_bytes = 128u << 10;

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

std::size_t pairs(int size) {
  return static_cast<std::size_t>(size) * static_cast<std::size_t>(size - 1);
}

}  // namespace

// Bytes over all messages; each on a cache line of its own, as different ranks write them.
struct ShmMailboxes::Counters {
  alignas(64) std::atomic<std::uint64_t> written;
  alignas(64) std::atomic<std::uint64_t> taken;
};

// One ring. The writer calls free() and write(), the reader filled() and read(), within the bytes
// available; publish and release notify the other side.
class ShmMailboxes::Mailbox {
 public:
  Mailbox(Counters& counters, std::span<std::byte> ring) : counters_(counters), ring_(ring) {}

  std::size_t room() const { return ring_.size(); }
  std::size_t free() const {
    return ring_.size() - (counters_.written.load(std::memory_order_relaxed) -
                           counters_.taken.load(std::memory_order_acquire));
  }
  std::size_t filled() const {
    return counters_.written.load(std::memory_order_acquire) -
           counters_.taken.load(std::memory_order_relaxed);
  }

  // Writes `ahead` bytes after the published ones.
  void write(std::size_t ahead, std::span<const std::byte> bytes) {
    const std::size_t at =
        (counters_.written.load(std::memory_order_relaxed) + ahead) % ring_.size();
    const std::size_t first = std::min(bytes.size(), ring_.size() - at);
    copy(bytes.first(first), &ring_[at]);
    copy(bytes.subspan(first), ring_.data());
  }
  void publish(std::size_t bytes) {
    counters_.written.store(counters_.written.load(std::memory_order_relaxed) + bytes,
                            std::memory_order_release);
  }

  // Reads `ahead` bytes after the released ones.
  void read(std::size_t ahead, std::span<std::byte> bytes) const {
    const std::size_t at = (counters_.taken.load(std::memory_order_relaxed) + ahead) % ring_.size();
    const std::size_t first = std::min(bytes.size(), ring_.size() - at);
    copy(ring_.subspan(at, first), bytes.data());
    copy(ring_.first(bytes.size() - first), bytes.data() + first);
  }
  void release(std::size_t bytes) {
    counters_.taken.store(counters_.taken.load(std::memory_order_relaxed) + bytes,
                          std::memory_order_release);
  }

 private:
  static void copy(std::span<const std::byte> from, std::byte* to) {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
  }

  Counters& counters_;
  std::span<std::byte> ring_;
};

// The waits of one send or receive.
class ShmMailboxes::Wait {
 public:
  Wait(ShmRounds& rounds, std::chrono::milliseconds timeout)
      : rounds_(rounds), timeout_(timeout), deadline_(deadline_in(timeout)) {}

  // Waits until `ready`; `what` and `peer` are for the error's message.
  template <class Ready>
  Result<void> until(const Ready& ready, std::string_view what, std::size_t bytes, int peer) {
    rounds_.bell(rounds_.rank())
        .wait([&] { return rounds_.aborted() || ready(); }, deadline_, rounds_.spin());
    if (rounds_.aborted()) {
      return fail(ErrorCode::cancelled,
                  "collectives: {} of {} bytes on rank {} of {}, the other is rank {}: the group "
                  "was aborted",
                  what, bytes, rounds_.rank(), rounds_.size(), peer);
    }
    if (ready()) return {};
    rounds_.abort();
    return fail(ErrorCode::timed_out,
                "collectives: {} of {} bytes on rank {} of {}: rank {} did not come within {} ms",
                what, bytes, rounds_.rank(), rounds_.size(), peer, timeout_.count());
  }

 private:
  ShmRounds& rounds_;
  std::chrono::milliseconds timeout_;
  Deadline deadline_;
};

std::size_t ShmMailboxes::head_bytes(int size) {
  return round_up(pairs(size) * sizeof(Counters), page_bytes);
}

std::size_t ShmMailboxes::region_bytes(int size, std::size_t room) {
  return head_bytes(size) + pairs(size) * round_up(std::max(room, unit), page_bytes);
}

ShmMailboxes::ShmMailboxes(ShmRounds& rounds)
    : rounds_(rounds),
      room_(rounds.size() == 1
                ? 0
                : (rounds.tail().size() - head_bytes(rounds.size())) / pairs(rounds.size())) {}

ShmMailboxes::Mailbox ShmMailboxes::mailbox(int from, int to) const {
  const std::size_t index =
      static_cast<std::size_t>(from) * static_cast<std::size_t>(rounds_.size() - 1) +
      static_cast<std::size_t>(to < from ? to : to - 1);
  return {reinterpret_cast<Counters*>(rounds_.tail().data())[index],
          rounds_.tail().subspan(head_bytes(rounds_.size()) + index * room_, room_)};
}

Result<void> ShmMailboxes::send(std::span<const std::byte> message, int to,
                                std::chrono::milliseconds timeout) {
  Wait wait(rounds_, timeout);
  Mailbox box = mailbox(rounds_.rank(), to);
  const std::uint64_t length = message.size();
  std::size_t head = sizeof(length);  // 0 once it is written
  std::size_t done = 0;
  while (head > 0 || done < message.size()) {
    const std::size_t left = message.size() - done;
    const std::size_t piece = std::min({left, piece_bytes, box.room() / 2});
    const std::size_t least = head + round_up(piece, unit);
    TROUPE_CHECK(wait.until([&] { return box.free() >= least; }, "send", message.size(), to));
    if (head > 0) box.write(0, std::as_bytes(std::span(&length, 1)));
    box.write(head, message.subspan(done, piece));
    box.publish(least);
    rounds_.bell(to).notify();
    done += piece;
    head = 0;
  }
  return {};
}

Result<void> ShmMailboxes::receive(std::span<std::byte> message, int from,
                                   std::chrono::milliseconds timeout) {
  Wait wait(rounds_, timeout);
  Mailbox box = mailbox(from, rounds_.rank());
  std::uint64_t length = 0;
  std::size_t head = sizeof(length);
  std::size_t done = 0;
  while (head > 0 || done < message.size()) {
    TROUPE_CHECK(wait.until([&] { return box.filled() > 0; }, "receive", message.size(), from));
    if (head > 0) box.read(0, std::as_writable_bytes(std::span(&length, 1)));
    if (length != message.size()) {
      rounds_.abort();
      return fail(ErrorCode::invalid_argument,
                  "receive: rank {} sent {} bytes to rank {}, which expects {}", from, length,
                  rounds_.rank(), message.size());
    }
    const std::size_t piece = std::min({message.size() - done, box.filled() - head, piece_bytes});
    box.read(head, message.subspan(done, piece));
    box.release(head + round_up(piece, unit));
    rounds_.bell(from).notify();
    done += piece;
    head = 0;
  }
  return {};
}

}  // namespace troupe
