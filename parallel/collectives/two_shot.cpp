#include "parallel/collectives/two_shot.hpp"

#include <cstdint>

#include "parallel/sharding/sharding.hpp"

namespace troupe {

std::vector<std::size_t> equal_shares(std::size_t count, std::size_t ranks) {
  std::vector<std::size_t> shares;
  for (int r = 0; r < static_cast<int>(ranks); ++r) {
    const Slice share = ceil_slice(static_cast<std::int64_t>(count), {r, static_cast<int>(ranks)});
    shares.push_back(static_cast<std::size_t>(share.count));
  }
  return shares;
}

}  // namespace troupe
