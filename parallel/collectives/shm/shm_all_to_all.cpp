#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "parallel/collectives/shm/shm_algorithms.hpp"

namespace troupe {

namespace {

/// A range of bytes of a rank's stream: the bytes it sends to others, in order of receiver.
struct Window {
  std::size_t begin;
  std::size_t end;

  Window intersect(Window other) const {
    const std::size_t from = std::max(begin, other.begin);
    return {from, std::max(from, std::min(end, other.end))};
  }
  std::size_t bytes() const { return end - begin; }
};

// Every rank streams its bytes through its slots; the first slot begins with its byte counts, from
// which all ranks know how many rounds there are and where in each stream their own bytes are.
class Exchange {
 public:
  Exchange(ShmRounds& rounds, const std::byte* send, std::span<const std::size_t> send_bytes,
           std::byte* receive, std::span<const std::size_t> receive_bytes)
      : rounds_(rounds),
        send_(send),
        send_bytes_(send_bytes),
        receive_(receive),
        receive_bytes_(receive_bytes),
        ranks_(send_bytes.size()),
        rank_(static_cast<std::size_t>(rounds.rank())),
        counts_(ranks_ * ranks_) {}

  Result<void> run() {
    keep_own();
    std::memcpy(rounds_.own_slot().data(), send_bytes_.data(), head_bytes());
    std::copy(send_bytes_.begin(), send_bytes_.end(), &counts_[rank_ * ranks_]);
    Window window{0, rounds_.slot_bytes() - head_bytes()};
    fill(window, head_bytes());
    TROUPE_CHECK(rounds_.meet());
    TROUPE_CHECK(read_counts());
    drain(window, head_bytes());

    const std::size_t longest = longest_stream();
    while (window.end < longest) {
      window = {window.end, window.end + rounds_.slot_bytes()};
      fill(window, 0);
      TROUPE_CHECK(rounds_.meet());
      drain(window, 0);
    }
    return {};
  }

 private:
  std::size_t head_bytes() const { return ranks_ * sizeof(std::size_t); }
  std::size_t count(std::size_t from, std::size_t to) const { return counts_[from * ranks_ + to]; }

  void keep_own() const {
    const std::size_t from = std::accumulate(send_bytes_.begin(), send_bytes_.begin() + rank_, 0ul);
    const std::size_t to =
        std::accumulate(receive_bytes_.begin(), receive_bytes_.begin() + rank_, 0ul);
    const std::size_t bytes = std::min(send_bytes_[rank_], receive_bytes_[rank_]);
    if (bytes > 0) std::memcpy(receive_ + to, send_ + from, bytes);
  }

  Result<void> read_counts() {
    for (std::size_t s = 0; s < ranks_; ++s) {
      std::memcpy(&counts_[s * ranks_], rounds_.met_slot(static_cast<int>(s)).data(), head_bytes());
      if (count(s, rank_) == receive_bytes_[s]) continue;
      rounds_.abort();
      return fail(ErrorCode::invalid_argument,
                  "all-to-all: rank {} sends {} bytes to rank {}, which expects {}", s,
                  count(s, rank_), rank_, receive_bytes_[s]);
    }
    return {};
  }

  std::size_t longest_stream() const {
    std::size_t longest = 0;
    for (std::size_t s = 0; s < ranks_; ++s) longest = std::max(longest, part(s, ranks_).begin);
    return longest;
  }

  // Returns where in the stream of `from` the bytes for `to` are; `to` = ranks gives the stream's
  // end.
  Window part(std::size_t from, std::size_t to) const {
    std::size_t begin = 0;
    for (std::size_t d = 0; d < to; ++d) begin += d == from ? 0 : count(from, d);
    return {begin, begin + (to == ranks_ || to == from ? 0 : count(from, to))};
  }

  // Writes this rank's stream within `window` into its slot, `at` bytes from the start.
  void fill(Window window, std::size_t at) const {
    std::byte* slot = rounds_.own_slot().data() + at;
    const std::byte* from = send_;
    for (std::size_t d = 0; d < ranks_; from += send_bytes_[d++]) {
      const Window whole = part(rank_, d);
      const Window now = whole.intersect(window);
      if (now.bytes() == 0) continue;
      std::memcpy(slot + (now.begin - window.begin), from + (now.begin - whole.begin), now.bytes());
    }
  }

  void drain(Window window, std::size_t at) const {
    std::byte* to = receive_;
    for (std::size_t s = 0; s < ranks_; to += receive_bytes_[s++]) {
      const Window whole = part(s, rank_);
      const Window now = whole.intersect(window);
      if (now.bytes() == 0) continue;
      const std::byte* slot = rounds_.met_slot(static_cast<int>(s)).data() + at;
      std::memcpy(to + (now.begin - whole.begin), slot + (now.begin - window.begin), now.bytes());
    }
  }

  ShmRounds& rounds_;
  const std::byte* send_;
  std::span<const std::size_t> send_bytes_;
  std::byte* receive_;
  std::span<const std::size_t> receive_bytes_;
  std::size_t ranks_;
  std::size_t rank_;
  std::vector<std::size_t> counts_;  // [sender, receiver]
};

}  // namespace

Result<void> shm_all_to_all(ShmRounds& rounds, const std::byte* send,
                            std::span<const std::size_t> send_bytes, std::byte* receive,
                            std::span<const std::size_t> receive_bytes) {
  return Exchange(rounds, send, send_bytes, receive, receive_bytes).run();
}

}  // namespace troupe
