#pragma once

#include <cstdint>

#include "parallel/mesh/mesh.hpp"
#include "parallel/sharding/sharding.hpp"

namespace troupe {

/// The experts of each layer that a rank holds, and the part of each that it holds.
struct ExpertShare {
  Slice experts;  ///< of the model's; none in dense models
  ShardOf part;   ///< of every expert's inner size: contiguous slice `rank` of `size`
};

/// Returns rank `rank`'s share of `experts`, which the mesh's expert_parallel_size must divide
/// (asserted). With expert_parallel_size 1 that is every expert, split over the tensor ranks.
ExpertShare expert_share(std::int64_t experts, const Mesh& mesh, int rank);

}  // namespace troupe
