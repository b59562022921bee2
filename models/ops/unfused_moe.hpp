#pragma once

#include "models/ops/dense_ops.hpp"
#include "models/ops/moe_ops.hpp"

namespace troupe {

// The combined operations of MoeOps, one part after the other: for devices, or sizes, that have no
// kernel for the whole. Arguments are as MoeOps says.

inline void unfused_route_and_permute(MoeOps& moe, const Tensor& logits, const Tensor& bias,
                                      const RouterOptions& options, const ExpertChoices& choices,
                                      const ExpertBatch& batch, const Tensor& counts) {
  moe.route(logits, bias, options, choices.ids, choices.weights);
  moe.permute(choices.ids, choices.first_expert, batch);
  moe.count_rows(batch, counts);
}

inline void unfused_route_tokens(MoeOps& moe, DenseOps& dense, const Linear& router,
                                 const Tensor& x, const Tensor& logits, const Tensor& bias,
                                 const RouterOptions& options, const ExpertChoices& choices,
                                 const ExpertBatch& batch, const Tensor& counts) {
  dense.linear(router, x, logits);
  moe.route_and_permute(logits, bias, options, choices, batch, counts);
}

inline void unfused_grouped_gate_up(MoeOps& moe, DenseOps& dense, const GroupedLinear& weights,
                                    const Tensor& x, const ExpertBatch& batch, std::int64_t top_k,
                                    const Tensor& scratch, const Tensor& out) {
  moe.grouped_linear(weights, x, batch, top_k, true, false, scratch);
  dense.silu_mul(scratch, out);
}

inline void unfused_expert_mlp(MoeOps& moe, const GroupedLinear& gate_up, const GroupedLinear& down,
                               const Tensor& x, const ExpertChoices& choices,
                               const ExpertBatch& batch, const ExpertScratch& scratch,
                               const Tensor& out) {
  const std::int64_t top_k = choices.ids[1];
  moe.grouped_gate_up(gate_up, x, batch, top_k, scratch.gate_up, scratch.activated);
  moe.grouped_linear(down, scratch.activated, batch, top_k, false, true, scratch.rows);
  moe.combine_local(scratch.rows, choices, down.experts(), out);
}

}  // namespace troupe
