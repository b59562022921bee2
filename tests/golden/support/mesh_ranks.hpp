#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "parallel/collectives/collectives.hpp"
#include "parallel/mesh/mesh.hpp"
#include "tests/golden/support/runner.hpp"

namespace troupe::golden {

/// The ranks to run a model on.
struct MeshRanks {
  MeshShape shape;
  int expert_parallel_size = 1;
  bool sequence_parallel = false;
  bool deterministic = false;  ///< of GPUs: bits depend on neither the batch nor the tensor size
  /// If set, takes the place of each rank's collectives, which it is given.
  std::function<std::unique_ptr<Collectives>(std::unique_ptr<Collectives>)> wrap = {};
  /// The same of those for its device's memory, where they are others.
  std::function<std::unique_ptr<Collectives>(std::unique_ptr<Collectives>)> wrap_device = {};
};

using RankBody = std::function<Result<std::vector<float>>(Runner& runner, int rank)>;

/// Runs `body` on each rank, a thread with its own model and collectives, and gives
/// what each rank's body returned. The logits of all stages but the last are zeros.
Result<std::vector<std::vector<float>>> run_ranks(const std::filesystem::path& folder,
                                                  DType precision, const MeshRanks& ranks,
                                                  const RankBody& body);

}  // namespace troupe::golden
