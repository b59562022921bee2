#include <numeric>

#include "models/config/read_parts.hpp"

namespace troupe {

namespace {

Result<MoeConfig> read_qwen3_moe(const Fields& fields, const ModelConfig& config) {
  MoeConfig moe;
  TROUPE_TRY(moe.experts, fields.integer({"num_local_experts", "num_experts"}, 1, max_experts));
  TROUPE_TRY(moe.top_k, fields.integer({"num_experts_per_tok"}, 1, moe.experts));
  TROUPE_TRY(moe.intermediate_size, fields.integer({"moe_intermediate_size"}, 1, max_width));
  TROUPE_TRY(moe.normalize_top_k, fields.boolean_or({"norm_topk_prob"}, false));
  TROUPE_TRY(moe.sparse_step, fields.integer_or({"decoder_sparse_step"}, 1, max_layers, 1));
  TROUPE_TRY(moe.dense_layers, fields.integers({"mlp_only_layers"}, 0, config.layers - 1));
  return moe;
}

Result<MoeConfig> read_mixtral(const Fields& fields, const ModelConfig& config) {
  MoeConfig moe;
  TROUPE_TRY(moe.experts, fields.integer({"num_local_experts"}, 1, max_experts));
  TROUPE_TRY(moe.top_k, fields.integer({"num_experts_per_tok"}, 1, moe.experts));
  moe.intermediate_size = config.intermediate_size;
  moe.normalize_top_k = true;
  return moe;
}

Result<void> read_deepseek_groups(const Fields& fields, MoeConfig& moe) {
  TROUPE_TRY(moe.groups, fields.integer({"n_group"}, 1, moe.experts));
  TROUPE_TRY(moe.top_groups, fields.integer({"topk_group"}, 1, moe.groups));
  const std::int64_t size = moe.experts / moe.groups;
  if (moe.experts % moe.groups != 0 || (moe.groups > 1 && size < 2)) {
    return fail(ErrorCode::corrupt_data,
                "{}: n_group {} does not cut n_routed_experts {} into equal groups of at least 2",
                fields.where(), moe.groups, moe.experts);
  }
  if (moe.top_k > moe.top_groups * size) {
    return fail(ErrorCode::corrupt_data,
                "{}: num_experts_per_tok {} is more than topk_group {} groups of {} experts hold",
                fields.where(), moe.top_k, moe.top_groups, size);
  }
  return {};
}

Result<MoeConfig> read_deepseek(const Fields& fields, const ModelConfig& config) {
  MoeConfig moe;
  TROUPE_TRY(const std::string scoring, fields.string_or({"scoring_func"}, "sigmoid"));
  if (scoring != "sigmoid") return fields.unsupported("scoring_func", scoring, "sigmoid");
  TROUPE_TRY(const std::string method, fields.string_or({"topk_method"}, "noaux_tc"));
  if (method != "noaux_tc") return fields.unsupported("topk_method", method, "noaux_tc");
  TROUPE_TRY(const std::int64_t step, fields.integer_or({"moe_layer_freq"}, 1, max_layers, 1));
  if (step != 1) return fields.unsupported("moe_layer_freq", fmt::to_string(step), "1");
  moe.scoring = RouterScoring::sigmoid;
  moe.choice_bias = true;
  TROUPE_TRY(moe.experts, fields.integer({"n_routed_experts"}, 1, max_experts));
  TROUPE_TRY(moe.top_k, fields.integer({"num_experts_per_tok"}, 1, moe.experts));
  TROUPE_TRY(moe.intermediate_size, fields.integer({"moe_intermediate_size"}, 1, max_width));
  TROUPE_TRY(moe.normalize_top_k, fields.boolean_or({"norm_topk_prob"}, true));
  TROUPE_TRY(moe.weight_scale, fields.number_or({"routed_scaling_factor"}, 0.0, 1e6, 2.5));
  TROUPE_CHECK(read_deepseek_groups(fields, moe));
  TROUPE_TRY(const std::int64_t shared, fields.integer_or({"n_shared_experts"}, 0, 1024, 1));
  moe.shared_intermediate_size = shared * moe.intermediate_size;
  TROUPE_TRY(const std::int64_t dense,
             fields.integer_or({"first_k_dense_replace"}, 0, config.layers, 3));
  moe.dense_layers.resize(static_cast<std::size_t>(dense));
  std::iota(moe.dense_layers.begin(), moe.dense_layers.end(), 0);
  return moe;
}

}  // namespace

Result<MoeConfig> read_moe(const Fields& fields, const ModelConfig& config) {
  switch (config.architecture) {
    case Architecture::mixtral:
      return read_mixtral(fields, config);
    case Architecture::deepseek_v3:
      return read_deepseek(fields, config);
    default:
      return read_qwen3_moe(fields, config);
  }
}

}  // namespace troupe
