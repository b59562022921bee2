#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "models/checkpoint/checkpoint.hpp"
#include "models/config/model_config.hpp"
#include "models/kv_policy/kv_policy.hpp"
#include "models/ops/kv_residual.hpp"
#include "models/ops/linear.hpp"
#include "parallel/device/dtype.hpp"
#include "parallel/mesh/mesh.hpp"
#include "parallel/sharding/sharding.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The parameters of a rank's footprint besides the model and its place. The defaults are those of
/// ModelLimits.
struct FootprintOptions {
  DType compute = DType::f32;                       ///< see ModelLimits
  WeightEncoding encoding = WeightEncoding::plain;  ///< see ModelLimits
  std::optional<bool> quantize_head = {};           ///< see ModelLimits
  DType kv_dtype = DType::f32;                      ///< see ModelLimits
  KvResiduals kv_residuals = {};                    ///< see ModelLimits
  std::int64_t max_positions = 0;                   ///< see ModelLimits
  std::int32_t block_size = 16;                     ///< tokens of a KV block
  KvPolicy kv_policy = {};                          ///< see ModelLimits
  std::int64_t panel_rows = 1;  ///< a matrix's rows are padded to a multiple of it
                                ///< (cpu_panel_rows)
  bool on_gpu = false;          ///< stages are balanced for GPUs
  bool gpu_codes = false;       ///< on a GPU: matrices may be held as codes (coded_panels)
  bool widens_codes = false;    ///< on a GPU: layers may fall back (ModelLimits::max_activation)
  bool shares_tables = false;   ///< a tied head has no copy of its own (WeightOps::share_table)
};

/// A rank's share of a model, and its bytes.
struct RankFootprint {
  Slice layers = {};   ///< of its stage
  Slice experts = {};  ///< of each of its sparse layers; none in dense models
  int expert_part = 0;
  int expert_parts = 1;                ///< above 1, it holds part expert_part of each
  std::size_t weight_bytes = 0;        ///< see Model::weight_bytes
  std::size_t decoded_bytes = 0;       ///< on a GPU, in which matrices of codes become bf16
  std::size_t rope_bytes = 0;          ///< of the tables of its rotary embeddings (rope_table)
  std::size_t kv_bytes_per_block = 0;  ///< see Model::kv_bytes_per_block
};

/// Returns what rank `rank` of `mesh` will hold once it has loaded, from the checkpoint's headers
/// alone. Errors: sizes that do not divide, and those of Checkpoint; check_model is more thorough.
Result<RankFootprint> rank_footprint(const ModelConfig& config, const Checkpoint& checkpoint,
                                     const Mesh& mesh, int rank, const FootprintOptions& options);

}  // namespace troupe
