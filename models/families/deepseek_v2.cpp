// DeepSeek-V2 (DeepSeek-AI 2024): DeepSeek-V3's layers with experts chosen by a softmax, in the
// large model within groups that are compared by their best expert.

#include "models/families/deepseek_parts.hpp"
#include "models/families/registry.hpp"
#include "models/families/weight_tables.hpp"

namespace troupe {

namespace {

constexpr auto weight_rules = join_tables(decoder_weights, latent_weights, dense_mlp_weights,
                                          expert_weights, shared_expert_weights);

Result<void> read_experts(const Fields& fields, ModelConfig& config) {
  TROUPE_TRY(const std::string scoring, fields.string_or({"scoring_func"}, "softmax"));
  if (scoring != "softmax") return fields.unsupported("scoring_func", scoring, "softmax");
  TROUPE_TRY(const bool normalizes, fields.boolean_or({"norm_topk_prob"}, false));
  if (normalizes) return fields.unsupported("norm_topk_prob", "true", "false");
  TROUPE_TRY(MoeConfig moe, read_routed_experts(fields, {.shared = 2}, config));
  TROUPE_TRY(const std::string method, fields.string_or({"topk_method"}, "greedy"));
  if (method == "group_limited_greedy") {
    moe.best_score_groups = true;
    TROUPE_CHECK(read_groups(fields, moe));
  } else if (method != "greedy") {
    return fields.unsupported("topk_method", method, "greedy, group_limited_greedy");
  }
  config.moe = std::move(moe);
  return {};
}

}  // namespace

constinit const Family deepseek_v2_family{
    .config = {.architecture = "DeepseekV2ForCausalLM",
               .model_type = "deepseek_v2",
               .attention_bias = AttentionBias::refused,
               .read_heads = read_latent_heads,
               .read_own = read_experts},
    .weights = weight_rules,
};

}  // namespace troupe
