#include <algorithm>
#include <cstring>

#include "parallel/collectives/shm/shm_algorithms.hpp"

namespace troupe {

Result<void> shm_broadcast(ShmRounds& rounds, std::byte* bytes, std::size_t count, int root) {
  for (std::size_t done = 0; done < count; done += rounds.slot_bytes()) {
    const std::size_t piece = std::min(rounds.slot_bytes(), count - done);
    const bool is_root = rounds.rank() == root;
    if (is_root) std::memcpy(rounds.own_slot().data(), bytes + done, piece);
    TROUPE_CHECK(rounds.meet());
    if (!is_root) std::memcpy(bytes + done, rounds.met_slot(root).data(), piece);
  }
  return {};
}

}  // namespace troupe
