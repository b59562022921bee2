#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "models/ops/linear.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/mesh/mesh.hpp"
#include "tests/golden/support/runner.hpp"

namespace troupe::golden {

/// The ranks to run a model on.
struct MeshRanks {
  MeshShape shape;
  int expert_parallel_size = 1;
  bool sequence_parallel = false;
  bool data_parallel_attention = false;
  bool deterministic = false;  ///< on GPUs: bits depend on neither the batch nor the tensor size
  std::optional<DType> kv_codes = {};  ///< the KV cache's dtype in place of the precision
  KvResiduals kv_residuals = {};
  WeightEncoding encoding = WeightEncoding::plain;  ///< of the layers' matrices
  std::optional<bool> quantize_head = {};           ///< see ModelLimits
  /// If set, wraps each rank's collectives.
  std::function<std::unique_ptr<Collectives>(std::unique_ptr<Collectives>)> wrap = {};
  /// The same for those of its device's memory, if they are separate.
  std::function<std::unique_ptr<Collectives>(std::unique_ptr<Collectives>)> wrap_device = {};
};

using RankBody = std::function<Result<std::vector<float>>(Runner& runner, int rank)>;

/// Runs `body` on each rank, a thread with its own model and collectives, and returns the results
/// of all. The logits of all stages but the last are zeros.
Result<std::vector<std::vector<float>>> run_ranks(const std::filesystem::path& folder,
                                                  DType precision, const MeshRanks& ranks,
                                                  const RankBody& body);

}  // namespace troupe::golden
