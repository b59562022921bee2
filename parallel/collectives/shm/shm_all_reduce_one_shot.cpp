#include <algorithm>
#include <cstring>
#include <vector>

#include "parallel/collectives/shm/shm_algorithms.hpp"
#include "parallel/collectives/tree_sum.hpp"

namespace troupe {

Result<void> shm_all_reduce_one_shot(ShmRounds& rounds, const float* partial, float* sum,
                                     std::size_t count) {
  const std::size_t piece = rounds.slot_bytes() / sizeof(float);
  std::vector<const float*> terms(static_cast<std::size_t>(rounds.size()));
  for (std::size_t begin = 0; begin < count; begin += piece) {
    const std::size_t elements = std::min(piece, count - begin);
    void* own = rounds.own_slot().data();
    if (partial + begin != own) std::memcpy(own, partial + begin, elements * sizeof(float));
    TROUPE_CHECK(rounds.meet());
    for (int r = 0; r < rounds.size(); ++r) {
      terms[static_cast<std::size_t>(r)] =
          reinterpret_cast<const float*>(rounds.met_slot(r).data());
    }
    tree_sum(terms, sum + begin, elements);
  }
  return {};
}

}  // namespace troupe
