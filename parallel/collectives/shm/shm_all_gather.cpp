#include <algorithm>
#include <cstring>

#include "parallel/collectives/shm/shm_algorithms.hpp"

namespace troupe {

Result<void> shm_all_gather(ShmRounds& rounds, const std::byte* part, std::byte* all,
                            std::span<const std::size_t> bytes_per_rank) {
  const std::size_t slot = rounds.slot_bytes();
  const std::size_t longest = *std::max_element(bytes_per_rank.begin(), bytes_per_rank.end());
  const auto piece_of = [&](int r, std::size_t done) {
    const std::size_t bytes = bytes_per_rank[static_cast<std::size_t>(r)];
    return std::min(slot, bytes - std::min(done, bytes));
  };
  for (std::size_t done = 0; done < longest; done += slot) {
    if (const std::size_t own = piece_of(rounds.rank(), done); own > 0) {
      std::memcpy(rounds.own_slot().data(), part + done, own);
    }
    TROUPE_CHECK(rounds.meet());
    std::byte* to = all;
    for (int r = 0; r < rounds.size(); ++r) {
      const std::size_t bytes = piece_of(r, done);
      const bool in_place = r == rounds.rank() && part == to;
      if (bytes > 0 && !in_place) std::memcpy(to + done, rounds.met_slot(r).data(), bytes);
      to += bytes_per_rank[static_cast<std::size_t>(r)];
    }
  }
  return {};
}

}  // namespace troupe
