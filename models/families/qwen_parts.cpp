#include "models/families/qwen_parts.hpp"

#include "models/config/config_limits.hpp"

namespace troupe {

Result<MoeConfig> read_qwen_experts(const Fields& fields, const ModelConfig& config) {
  MoeConfig moe;
  TROUPE_TRY(moe.experts, fields.integer({"num_local_experts", "num_experts"}, 1, max_experts));
  TROUPE_TRY(moe.top_k, fields.integer({"num_experts_per_tok"}, 1, moe.experts));
  TROUPE_TRY(moe.intermediate_size, fields.integer({"moe_intermediate_size"}, 1, max_width));
  TROUPE_TRY(moe.normalize_top_k, fields.boolean_or({"norm_topk_prob"}, false));
  TROUPE_TRY(moe.sparse_step, fields.integer_or({"decoder_sparse_step"}, 1, max_layers, 1));
  TROUPE_TRY(moe.dense_layers, fields.integers({"mlp_only_layers"}, 0, config.layers - 1));
  return moe;
}

}  // namespace troupe
