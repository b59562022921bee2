#include "models/model/stages.hpp"

#include <algorithm>

#include "parallel/pipeline/stage_balance.hpp"

namespace troupe {

namespace {

constexpr std::int64_t typical_context = 512;

/// Assumed context of a sequence in a GPU's decode steps, and sequences that share the weights.
constexpr std::int64_t read_context = 1536;
constexpr std::int64_t sharing_rows = 128;
/// Multiply-adds of bf16 in the time in which an H200 reads an element: 325 T/s to 2.05 T/s.
constexpr std::int64_t multiply_adds_per_read = 158;

std::int64_t latent_attention_cost(const ModelConfig& config, std::int64_t context) {
  const LatentConfig& latent = *config.latent;
  const std::int64_t query_width = config.heads * config.head_dim;
  const std::int64_t query = latent.query_rank == 0
                                 ? config.hidden_size * query_width
                                 : latent.query_rank * (config.hidden_size + query_width);
  const std::int64_t down = config.hidden_size * (latent.rank + latent.rotated_dim);
  const std::int64_t up = config.heads * latent.rank * (latent.unrotated_dim + latent.value_dim);
  const std::int64_t output = config.hidden_size * config.heads * latent.value_dim;
  const std::int64_t index_width = latent.index_heads * latent.index_dim;
  const std::int64_t index = latent.query_rank * index_width +
                             config.hidden_size * (latent.index_dim + latent.index_heads) +
                             index_width * context;
  const std::int64_t seen =
      latent.index_top_k > 0 ? std::min(latent.index_top_k, context) : context;
  return query + down + up + output + (latent.index_top_k > 0 ? index : 0) +
         config.heads * (2 * latent.rank + latent.rotated_dim) * seen;
}

std::int64_t attention_cost(const ModelConfig& config, std::int64_t layer) {
  std::int64_t context = std::min(typical_context, config.max_position_embeddings);
  if (config.latent) return latent_attention_cost(config, context);
  if (config.window_of(layer) > 0) context = std::min(context, config.window_of(layer));
  const std::int64_t query_width = config.heads * config.head_dim;
  const std::int64_t kv_width = config.kv_heads * config.head_dim;
  const std::int64_t projections = config.hidden_size * (2 * query_width + 2 * kv_width);
  return projections + 2 * query_width * context;
}

std::int64_t mlp_cost(const ModelConfig& config, std::int64_t layer) {
  if (!config.is_sparse(layer)) {
    const std::int64_t matrices = is_gated(config.activation) ? 3 : 2;
    return matrices * config.hidden_size * config.intermediate_size;
  }
  const MoeConfig& moe = *config.moe;
  return config.hidden_size *
         (moe.experts + 3 * moe.top_k * moe.intermediate_size + 3 * moe.shared_intermediate_size);
}

std::int64_t projection_weights(const ModelConfig& config) {
  if (config.latent) return latent_attention_cost(config, 0);
  return config.hidden_size * config.head_dim * 2 * (config.heads + config.kv_heads);
}

/// MLP weights of all experts, which a batch's tokens together reach.
std::int64_t mlp_weights(const ModelConfig& config, std::int64_t layer) {
  if (!config.is_sparse(layer)) return mlp_cost(config, layer);
  const MoeConfig& moe = *config.moe;
  return config.hidden_size *
         (moe.experts + 3 * moe.experts * moe.intermediate_size + 3 * moe.shared_intermediate_size);
}

/// Elements of KV per position and layer.
std::int64_t cached_width(const ModelConfig& config) {
  if (config.latent) return config.latent->rank + config.latent->rotated_dim;
  return 2 * config.kv_heads * config.head_dim;
}

std::int64_t reading_cost(const ModelConfig& config, std::int64_t layer) {
  std::int64_t context = std::min(read_context, config.max_position_embeddings);
  if (config.window_of(layer) > 0) context = std::min(context, config.window_of(layer));
  const std::int64_t weights = projection_weights(config) + mlp_weights(config, layer);
  return multiply_adds_per_read * (weights / sharing_rows + cached_width(config) * context);
}

}  // namespace

std::vector<std::int64_t> layer_costs(const ModelConfig& config, bool on_gpu) {
  std::vector<std::int64_t> costs;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    costs.push_back(attention_cost(config, layer) + mlp_cost(config, layer) +
                    (on_gpu ? reading_cost(config, layer) : 0));
  }
  const std::int64_t head = config.hidden_size * config.vocab_size;
  costs.front() += config.hidden_size;
  costs.back() += on_gpu ? multiply_adds_per_read * head / sharing_rows : head / 2;
  return costs;
}

Result<std::vector<Slice>> stage_layers(const ModelConfig& config, int stages, bool on_gpu) {
  if (stages < 1 || stages > config.layers) {
    return fail(ErrorCode::invalid_argument,
                "pipeline_parallel_size {} does not fit the model's {} layers", stages,
                config.layers);
  }
  return balance_stages(layer_costs(config, on_gpu), stages);
}

}  // namespace troupe
