#include "models/layers/moe/routed_experts.hpp"

namespace troupe {

Result<ExpertWeights> ExpertWeights::create(const LayerContext& context, std::int64_t layer) {
  using enum Parameter;
  ExpertWeights weights;
  TROUPE_TRY(weights.router, Router::create(context, layer));
  TROUPE_TRY(weights.gate_up, context.weights.grouped_linear({expert_gate, expert_up}, layer));
  TROUPE_TRY(weights.down, context.weights.grouped_linear({expert_down}, layer));
  if (context.config.moe->expert_bias) {
    TROUPE_TRY(weights.bias,
               context.weights.expert_vectors({expert_gate_bias, expert_up_bias}, layer, false));
    TROUPE_TRY(weights.output_bias,
               context.weights.expert_vectors({expert_down_bias}, layer, true));
  }
  TROUPE_TRY(weights.rows_per_expert,
             context.ops.memory().allocate(DType::i64, Shape{weights.down->experts()}));
  return weights;
}

void RoutedExperts::activate(const Tensor& x, const ExpertBatch& batch, std::int64_t top_k,
                             const Tensor& gate_up, const Tensor& activated) const {
  if (are_plain()) {
    ops_.moe().grouped_gate_up(*weights_.gate_up, x, batch, top_k, gate_up, activated);
    return;
  }
  if (ops_.moe().grouped_activate(*weights_.gate_up, x, batch, top_k, weights_.bias, activation_,
                                  activated)) {
    return;
  }
  ops_.moe().grouped_linear(*weights_.gate_up, x, batch, top_k, true, false, gate_up);
  if (!weights_.bias->empty()) ops_.moe().add_expert_bias(gate_up, batch, weights_.bias);
  ops_.dense().activate(gate_up, activation_, activated);
}

void RoutedExperts::compute(const Tensor& x, const ExpertChoices& choices, const ExpertBatch& batch,
                            const ExpertScratch& scratch, const Tensor& out,
                            const SharedMlp& shared) const {
  if (are_plain()) {
    ops_.moe().expert_mlp(*weights_.gate_up, *weights_.down, x, choices, batch, scratch, out,
                          shared);
    return;
  }
  const std::int64_t top_k = choices.ids[1];
  activate(x, batch, top_k, scratch.gate_up, scratch.activated);
  ops_.moe().grouped_linear(*weights_.down, scratch.activated, batch, top_k, false, true,
                            scratch.rows);
  ops_.moe().combine_local(scratch.rows, choices, weights_.down->experts(), out);
}

void RoutedExperts::add_output_bias(const Tensor& ids, const Tensor& weights,
                                    const Tensor& out) const {
  if (has_output_bias()) ops_.moe().add_chosen_bias(ids, weights, weights_.output_bias, out);
}

}  // namespace troupe
