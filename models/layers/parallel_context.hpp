#pragma once

#include "parallel/collectives/collectives.hpp"
#include "parallel/mesh/mesh.hpp"

namespace troupe {

/// Where a rank stands among those it computes with. All ranks load the same checkpoint with the
/// same limits; those of a replica run the same passes in the same order. The collectives outlive
/// what is made with them; each may be null where its group has one rank.
struct ParallelContext {
  Mesh mesh;
  int rank = 0;
  bool sequence_parallel = false;   ///< residual stream divided over the tensor group's ranks
  Collectives* tensor = nullptr;    ///< ranks that share each matrix, by tensor coordinate
  Collectives* pipeline = nullptr;  ///< ranks of the same place in every stage, by stage
  Collectives* experts = nullptr;   ///< Mesh::dispatch_group; only with expert_parallel_size > 1

  MeshCoordinates at() const { return mesh.coordinates(rank); }
};

}  // namespace troupe
