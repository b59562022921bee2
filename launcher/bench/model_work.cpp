#include "launcher/bench/model_work.hpp"

#include <cmath>

namespace troupe {
namespace {

double attention_parameters(const ModelConfig& model) {
  const auto hidden = static_cast<double>(model.hidden_size);
  const auto queries = static_cast<double>(model.heads * model.head_dim);
  if (!model.latent) {
    const auto keys_and_values = static_cast<double>(2 * model.kv_heads * model.head_dim);
    return hidden * (queries + keys_and_values) + queries * hidden;
  }
  const LatentConfig& latent = *model.latent;
  const auto rank = static_cast<double>(latent.rank);
  const auto query_rank = static_cast<double>(latent.query_rank);
  const auto values = static_cast<double>(model.heads * latent.value_dim);
  const auto unrotated = static_cast<double>(model.heads * latent.unrotated_dim);
  const double query = query_rank > 0 ? (hidden + queries) * query_rank : hidden * queries;
  return query + hidden * (rank + static_cast<double>(latent.rotated_dim)) +
         rank * (unrotated + values) + values * hidden;
}

/// The tokens before each token of an answer's sequence, summed over those that were computed.
double sum_of_contexts(const Outcome& outcome) {
  const auto last = static_cast<double>(outcome.prompt_tokens + outcome.output_tokens - 1);
  return last > 0 ? last * (last + 1) / 2 : 0;
}

}  // namespace

ModelWork::ModelWork(const ModelConfig& model, double weight_bytes, double kv_bytes)
    : weight_bytes_(weight_bytes), kv_bytes_(kv_bytes) {
  const auto layers = static_cast<double>(model.layers);
  const auto hidden = static_cast<double>(model.hidden_size);
  dense_parameters_ = layers * attention_parameters(model);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    if (!model.is_sparse(layer)) {
      dense_parameters_ += 3 * hidden * static_cast<double>(model.intermediate_size);
      continue;
    }
    const MoeConfig& moe = *model.moe;
    const double expert = 3 * hidden * static_cast<double>(moe.intermediate_size);
    dense_parameters_ +=
        hidden * static_cast<double>(moe.experts + 3 * moe.shared_intermediate_size);
    expert_parameters_ += expert * static_cast<double>(moe.experts);
    chosen_parameters_ += expert * static_cast<double>(moe.top_k);
    choice_share_ = static_cast<double>(moe.top_k) / static_cast<double>(moe.experts);
  }
  head_parameters_ = hidden * static_cast<double>(model.vocab_size);
  // A query with each key, and each weight with a value.
  const auto value_dim = model.latent ? model.latent->value_dim : model.head_dim;
  attention_operations_ =
      layers * 2 * static_cast<double>(model.heads * (model.head_dim + value_dim));
  kv_numbers_ =
      layers * static_cast<double>(model.latent ? model.latent->rank + model.latent->rotated_dim
                                                : 2 * model.kv_heads * model.head_dim);
}

double ModelWork::operations(std::span<const Outcome> outcomes,
                             double computed_prompt_tokens) const {
  double generated = 0, contexts = 0, answers = 0;
  for (const Outcome& outcome : outcomes) {
    if (!outcome.error.empty()) continue;
    generated += static_cast<double>(outcome.output_tokens);
    contexts += sum_of_contexts(outcome);
    ++answers;
  }
  // The last token of an answer is generated and not computed.
  const double computed = computed_prompt_tokens + generated - answers;
  return 2 * computed * parameters_per_token() + 2 * generated * head_parameters_ +
         contexts * attention_operations_;
}

double ModelWork::bytes(std::span<const Outcome> outcomes, double tokens, double steps) const {
  if (steps <= 0) return 0;
  double read_again = 0;
  for (const Outcome& outcome : outcomes) {
    if (!outcome.error.empty()) continue;
    const auto generated = static_cast<double>(outcome.output_tokens);
    read_again += generated * (static_cast<double>(outcome.prompt_tokens) + generated / 2);
  }
  const double met = 1 - std::pow(1 - choice_share_, tokens / steps);
  const double weights = dense_parameters_ + head_parameters_ + expert_parameters_ * met;
  return steps * weights * weight_bytes_ + read_again * kv_numbers_ * kv_bytes_;
}

}  // namespace troupe
