#include "models/layers/moe/routed_experts.hpp"

namespace troupe {

Result<ExpertWeights> ExpertWeights::create(const LayerContext& context, std::int64_t layer) {
  using enum Parameter;
  ExpertWeights weights;
  TROUPE_TRY(weights.router, Router::create(context, layer));
  TROUPE_TRY(weights.gate_up, context.weights.grouped_linear({expert_gate, expert_up}, layer));
  TROUPE_TRY(weights.down, context.weights.grouped_linear({expert_down}, layer));
  TROUPE_TRY(weights.rows_per_expert,
             context.ops.memory().allocate(DType::i64, Shape{weights.down->experts()}));
  return weights;
}

}  // namespace troupe
