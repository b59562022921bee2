#pragma once

#include <cstdint>

#include "parallel/mesh/mesh.hpp"
#include "parallel/sharding/sharding.hpp"

namespace troupe {

/// Which experts of each layer a rank holds, and which part of each of them.
struct ExpertShare {
  Slice experts;  ///< of the model's; none in models without
  ShardOf part;   ///< of every expert's inner size: contiguous slice `rank` of `size`
};

/// Rank `rank`'s share of `experts`, which the mesh's expert_parallel_size must divide (asserted).
/// With expert_parallel_size 1 that is every expert, split over the tensor ranks.
ExpertShare expert_share(std::int64_t experts, const Mesh& mesh, int rank);

}  // namespace troupe
