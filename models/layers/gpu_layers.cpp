#include "models/layers/gpu_layers.hpp"

#include <string_view>
#include <utility>

namespace troupe {

namespace {

bool scales(const ModelConfig& config) {
  return config.embedding_scale != 1.0F || config.form.residual_scale != 1.0F ||
         config.logit_scale != 1.0F || config.logit_soft_cap > 0.0F;
}

}  // namespace

Result<void> check_gpu_layers(const ModelConfig& config) {
  const MoeConfig moe = config.moe.value_or(MoeConfig());
  const std::pair<bool, std::string_view> missing[] = {
      {config.norm.kind != NormConfig::Kind::rms, "LayerNorm"},
      {config.activation != Activation::silu_gated, "activations other than SiLU"},
      {scales(config), "factors of embeddings, blocks and logits"},
      {config.query_key_norm == QueryKeyNorm::projection, "a norm over all heads together"},
      {moe.expert_bias, "biases of experts"},
      {moe.gated_shared_expert, "a gate of the shared expert"},
      {moe.best_score_groups, "groups of experts that are compared by their best score"},
  };
  for (const auto& [needed, what] : missing) {
    if (!needed) continue;
    return fail(ErrorCode::unsupported,
                "{} has {}, for which this version has no GPU kernel; cluster.device: cpu runs it",
                config.architecture, what);
  }
  return {};
}

}  // namespace troupe
