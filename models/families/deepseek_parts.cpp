#include "models/families/deepseek_parts.hpp"

#include <numeric>

#include "models/config/config_limits.hpp"

namespace troupe {

Result<void> read_latent_heads(const Fields& fields, ModelConfig& config) {
  LatentConfig latent;
  if (!fields.mentions("q_lora_rank")) {
    return fail(ErrorCode::corrupt_data, "{}: missing key q_lora_rank", fields.where());
  }
  TROUPE_TRY(latent.query_rank, fields.integer_or({"q_lora_rank"}, 1, max_width, 0));
  TROUPE_TRY(latent.rank, fields.integer({"kv_lora_rank"}, 1, max_width));
  TROUPE_TRY(latent.unrotated_dim, fields.integer({"qk_nope_head_dim"}, 1, max_width));
  TROUPE_TRY(latent.rotated_dim, fields.integer({"qk_rope_head_dim"}, 2, max_width));
  TROUPE_TRY(latent.value_dim, fields.integer({"v_head_dim"}, 1, max_width));
  TROUPE_TRY(latent.interleaved_rope, fields.boolean_or({"rope_interleave"}, true));
  if (latent.rotated_dim % 2 != 0) {
    return fail(ErrorCode::corrupt_data, "{}: qk_rope_head_dim: expected an even number, found {}",
                fields.where(), latent.rotated_dim);
  }
  config.kv_heads = 1;
  config.head_dim = latent.unrotated_dim + latent.rotated_dim;
  config.latent = latent;
  return {};
}

Result<void> read_groups(const Fields& fields, MoeConfig& moe) {
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

Result<MoeConfig> read_routed_experts(const Fields& fields, const ExpertDefaults& absent,
                                      const ModelConfig& config) {
  MoeConfig moe;
  TROUPE_TRY(const std::int64_t step, fields.integer_or({"moe_layer_freq"}, 1, max_layers, 1));
  if (step != 1) return fields.unsupported("moe_layer_freq", fmt::to_string(step), "1");
  TROUPE_TRY(moe.experts, fields.integer({"n_routed_experts"}, 1, max_experts));
  TROUPE_TRY(moe.top_k, fields.integer({"num_experts_per_tok"}, 1, moe.experts));
  TROUPE_TRY(moe.intermediate_size, fields.integer({"moe_intermediate_size"}, 1, max_width));
  TROUPE_TRY(moe.weight_scale,
             fields.number_or({"routed_scaling_factor"}, 0.0, 1e6, absent.weight_scale));
  TROUPE_TRY(const std::int64_t shared,
             fields.integer_or({"n_shared_experts"}, 0, 1024, absent.shared));
  moe.shared_intermediate_size = shared * moe.intermediate_size;
  TROUPE_TRY(const std::int64_t dense,
             fields.integer_or({"first_k_dense_replace"}, 0, config.layers, absent.dense_layers));
  moe.dense_layers.resize(static_cast<std::size_t>(dense));
  std::iota(moe.dense_layers.begin(), moe.dense_layers.end(), 0);
  return moe;
}

Result<void> read_sigmoid_experts(const Fields& fields, const ExpertDefaults& absent,
                                  ModelConfig& config) {
  TROUPE_TRY(const std::string scoring, fields.string_or({"scoring_func"}, "sigmoid"));
  if (scoring != "sigmoid") return fields.unsupported("scoring_func", scoring, "sigmoid");
  TROUPE_TRY(const std::string method, fields.string_or({"topk_method"}, "noaux_tc"));
  if (method != "noaux_tc") return fields.unsupported("topk_method", method, "noaux_tc");
  TROUPE_TRY(MoeConfig moe, read_routed_experts(fields, absent, config));
  moe.scoring = RouterScoring::sigmoid;
  moe.choice_bias = true;
  TROUPE_TRY(moe.normalize_top_k, fields.boolean_or({"norm_topk_prob"}, true));
  TROUPE_CHECK(read_groups(fields, moe));
  config.moe = std::move(moe);
  return {};
}

}  // namespace troupe
