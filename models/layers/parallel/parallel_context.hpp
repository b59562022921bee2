#pragma once

#include "parallel/collectives/collectives.hpp"
#include "parallel/mesh/mesh.hpp"

namespace troupe {

/// A rank's collectives in one of its groups: for tensors in host memory, and for those that Ops
/// computes on. Both are the same object if the device uses host memory, and null on one rank.
struct RankGroup {
  RankGroup() = default;
  RankGroup(Collectives* both) : host(both), device(both) {}  // NOLINT: implicit
  RankGroup(Collectives* of_host, Collectives* of_device) : host(of_host), device(of_device) {}

  Collectives* host = nullptr;
  Collectives* device = nullptr;
};

/// A rank's place among the ranks it computes with. All ranks load the same checkpoint with the
/// same limits; those of a replica run the same passes in the same order. The collectives outlive
/// what is made with them.
struct ParallelContext {
  Mesh mesh;
  int rank = 0;
  bool sequence_parallel = false;  ///< residual stream divided over the tensor group's ranks
  RankGroup tensor = {};           ///< ranks that share each matrix, by tensor coordinate
  RankGroup context = {};          ///< ranks that share the rows of a pass, by context coordinate
  RankGroup pipeline = {};         ///< ranks of the same place in every stage, by stage
  RankGroup experts = {};          ///< Mesh::dispatch_group; only with expert_parallel_size > 1
  RankGroup dense = {};            ///< Mesh::dense_group; only with data_parallel_attention

  MeshCoordinates at() const { return mesh.coordinates(rank); }
};

}  // namespace troupe
