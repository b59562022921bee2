#include "launcher/bench/sweep/model_work.hpp"

#include <algorithm>
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

/// An answer in terms of computed positions; its choices have one length.
struct Positions {
  explicit Positions(const Outcome& outcome)
      : prompt(static_cast<double>(outcome.prompt_tokens)),
        choices(static_cast<double>(outcome.choices)) {
    const double each = choices > 0 ? static_cast<double>(outcome.output_tokens) / choices : 0;
    fed_back = std::max(each - 1, 0.0);
  }

  double prompt = 0;
  double choices = 0;
  double fed_back = 0;  ///< generated tokens of a choice that become inputs: all but the last
};

}  // namespace

ModelWork::ModelWork(const ModelConfig& model, double weight_bytes, double kv_bytes, double copies,
                     std::optional<double> attention_copies)
    : weight_bytes_(weight_bytes), kv_bytes_(kv_bytes), copies_(copies) {
  layers_ = static_cast<double>(model.layers);
  const auto hidden = static_cast<double>(model.hidden_size);
  dense_parameters_ = layers_ * attention_parameters(model);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    ++windows_[model.window_of(layer)];
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
  more_attention_ =
      layers_ * attention_parameters(model) * (attention_copies.value_or(copies) - copies);
  head_parameters_ = hidden * static_cast<double>(model.vocab_size);
  // A query times each key, and each weight times a value.
  const auto value_dim = model.latent ? model.latent->value_dim : model.head_dim;
  pair_operations_ = 2 * static_cast<double>(model.heads * (model.head_dim + value_dim));
  kv_numbers_ = static_cast<double>(model.latent ? model.latent->rank + model.latent->rotated_dim
                                                 : 2 * model.kv_heads * model.head_dim);
}

double ModelWork::seen(double from, double to) const {
  double sum = 0;
  for (const auto& [width, layers] : windows_) {
    const auto window = static_cast<double>(width);
    const auto up_to = [window](double end) {
      if (window <= 0 || end <= window) return end * (end + 1) / 2;
      return window * (window + 1) / 2 + (end - window) * window;
    };
    sum += layers * (up_to(to) - up_to(from));
  }
  return sum;
}

double ModelWork::operations(std::span<const Outcome> outcomes,
                             double computed_prompt_tokens) const {
  double prompts = 0;
  for (const Outcome& outcome : outcomes) {
    if (outcome.error.empty()) prompts += static_cast<double>(outcome.prompt_tokens);
  }
  const double computed_share = prompts > 0 ? computed_prompt_tokens / prompts : 0;
  double fed_back = 0, generated = 0, pairs = 0;
  for (const Outcome& outcome : outcomes) {
    if (!outcome.error.empty()) continue;
    const Positions of(outcome);
    generated += static_cast<double>(outcome.output_tokens);
    fed_back += of.choices * of.fed_back;
    // Cached prefixes come first, so their tokens see few others.
    pairs += computed_share < 1 ? seen((1 - computed_share) * of.prompt, of.prompt)
                                : computed_share * seen(0, of.prompt);
    pairs += of.choices * seen(of.prompt, of.prompt + of.fed_back);
  }
  return 2 * (computed_prompt_tokens + fed_back) * parameters_per_token() +
         2 * generated * head_parameters_ + pairs * pair_operations_;
}

double ModelWork::bytes(std::span<const Outcome> outcomes, const StepTally& steps) const {
  double weights = static_cast<double>(steps.sampling) * head_parameters_ * copies_;
  for (const auto& [tokens, count] : steps.by_tokens) {
    const double met = 1 - std::pow(1 - choice_share_, static_cast<double>(tokens));
    weights += static_cast<double>(count) *
               (dense_parameters_ * copies_ + more_attention_ + expert_parameters_ * met);
  }
  double read_again = 0;
  for (const Outcome& outcome : outcomes) {
    if (!outcome.error.empty()) continue;
    const Positions of(outcome);
    // A token's own KV is not read again; the rest that it sees is.
    read_again += of.choices * (seen(of.prompt, of.prompt + of.fed_back) - layers_ * of.fed_back);
  }
  return weights * weight_bytes_ + read_again * kv_numbers_ * kv_bytes_;
}

}  // namespace troupe
