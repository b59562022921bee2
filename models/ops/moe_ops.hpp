#pragma once

#include <cstdint>

#include "models/config/activation.hpp"
#include "models/ops/columns.hpp"
#include "models/ops/linear.hpp"
#include "models/ops/op_checks.hpp"
#include "parallel/device/tensor.hpp"

namespace troupe {

struct RouterOptions {
  std::int64_t top_k = 1;
  bool normalize = false;  ///< the chosen experts' weights are divided by their sum
  bool sigmoid = false;    ///< scores are sigmoids of the logits instead of their softmax
  /// Of the `groups` equal groups of experts, only the `top_groups` whose two best scores have the
  /// largest sum take part.
  std::int64_t groups = 1;
  std::int64_t top_groups = 1;
  bool best_score_groups = false;  ///< groups are compared by their best score instead of two
  float scale = 1.0F;              ///< factor of the weights
};

/// The rows of a pass in the order of their experts, for grouped GEMMs. Made by MoeOps::permute.
/// Entry i of `source` is `token * top_k + choice` of sorted row i; rows of one expert keep token
/// order.
struct ExpertBatch {
  Tensor offsets;  ///< [local experts + 1] i32: expert e has sorted rows [offsets[e], offsets[e+1])
  Tensor source;   ///< [tokens * top_k] i32; the first offsets[last] entries are valid
  /// Number of valid entries, as near as the host knows; 0: all. Selects the fastest kernels.
  std::int64_t expected_rows = 0;
  /// If the tokens' rows are given as 8-bit codes: their scales, [tokens] f32.
  Tensor scales = {};
};

/// Tokens in 8-bit codes, as experts in such codes multiply them.
struct CodedTokens {
  Tensor codes;   ///< [tokens, hidden] u8
  Tensor scales;  ///< [tokens] f32
};

/// A router's choices for the tokens of a pass, on a rank that has some of the experts.
struct ExpertChoices {
  Tensor ids;                     ///< [tokens, top_k] i32, a token's all different
  Tensor weights;                 ///< [tokens, top_k] f32
  std::int64_t first_expert = 0;  ///< the first local expert; a batch or count gives their number
};

/// A gated MLP that all tokens take beside their experts: silu(gate) * up, then down. Null: none.
struct SharedMlp {
  const Linear* gate_up = nullptr;  ///< [2 shared inner, hidden]
  const Linear* down = nullptr;     ///< [hidden, shared inner]
};
/// The most tokens of a pass for which MoeOps::adds_shared_mlp may be true.
inline constexpr std::int64_t max_tokens_with_shared_mlp = 8;

/// Scratch memory between a pass's tokens and their experts' outputs.
struct ExpertScratch {
  Tensor gate_up;    ///< [tokens * top_k, 2 inner]
  Tensor activated;  ///< [tokens * top_k, inner]
  Tensor rows;       ///< [tokens * top_k, hidden]
  Tensor shared;     ///< [tokens, shared inner], if there is a shared MLP
};

/// Experts: routing, sorting tokens by expert, grouped products, combining. Only enqueue, as
/// ops.hpp says.
class MoeOps {
 public:
  virtual ~MoeOps() = default;

  /// Scores of all experts in f32, then the top_k largest of score + bias (ties: the lower index),
  /// best first; all different, also where logits are not finite. The weights are the scores,
  /// without bias. logits [tokens, experts] f32; bias [experts] f32, or empty: none; ids [tokens,
  /// top_k] i32; weights [tokens, top_k] f32.
  void route(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
             const Tensor& ids, const Tensor& weights) {
    if constexpr (op_checks::enabled) op_checks::route(logits, bias, options, ids, weights);
    do_route(logits, bias, options, ids, weights);
  }

  /// Sorts (token, expert) assignments by expert, keeping those of local experts [first_expert,
  /// first_expert + local). ids [tokens, top_k], a token's all different; fills batch.
  void permute(const Tensor& ids, std::int64_t first_expert, const ExpertBatch& batch) {
    if constexpr (op_checks::enabled) op_checks::permute(ids, batch);
    do_permute(ids, first_expert, batch);
  }

  /// counts[e] += the rows of expert e in `batch`. counts [local experts] i64.
  void count_rows(const ExpertBatch& batch, const Tensor& counts) {
    if constexpr (op_checks::enabled) op_checks::count_rows(batch, counts);
    do_count_rows(batch, counts);
  }

  /// permute and count_rows for ids in equal parts: only the first received_counts[p] rows of part
  /// p count; the others are not read. received_counts [parts] i32, on the device.
  void permute_received(const Tensor& ids, const Tensor& received_counts, std::int64_t first_expert,
                        const ExpertBatch& batch, const Tensor& counts) {
    if constexpr (op_checks::enabled) {
      op_checks::permute_received(ids, received_counts, batch, counts);
    }
    do_permute_received(ids, received_counts, first_expert, batch, counts);
  }

  /// route, permute and count_rows: fills `choices` and `batch`.
  void route_and_permute(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
                         const ExpertChoices& choices, const ExpertBatch& batch,
                         const Tensor& counts) {
    if constexpr (op_checks::enabled) {
      op_checks::route_and_permute(logits, bias, options, choices, batch, counts);
    }
    do_route_and_permute(logits, bias, options, choices, batch, counts);
  }

  /// linear with `router`, then route_and_permute of its output. x [tokens, hidden]; logits
  /// [tokens, experts] f32 may be overwritten.
  void route_tokens(const Linear& router, const Tensor& x, const Tensor& logits, const Tensor& bias,
                    const RouterOptions& options, const ExpertChoices& choices,
                    const ExpertBatch& batch, const Tensor& counts) {
    if constexpr (op_checks::enabled) {
      op_checks::route_tokens(router, x, logits, bias, options, choices, batch, counts);
    }
    do_route_tokens(router, x, logits, bias, options, choices, batch, counts);
  }

  /// True if the device has products that multiply codes of tokens, for experts that allow it.
  virtual bool multiplies_codes() const { return false; }
  /// True if products with `gate_up` multiply codes of tokens: then they may be given as such.
  bool takes_codes(const GroupedLinear& gate_up) const { return do_takes_codes(gate_up); }
  /// The codes that such products make of x [tokens, hidden]. Valid until codes of other rows are
  /// made, or x is written.
  CodedTokens codes_of(const Tensor& x) { return do_codes_of(x); }

  /// For sorted row i of expert e: out[i] = x[row_of(i)] . weights[e]^T. With `gather`, row_of(i)
  /// is source[i] / top_k (x [tokens, k]); otherwise i (x is sorted). out [tokens * top_k, n],
  /// sorted; with `scatter` the out row is source[i] instead. Rows beyond offsets[last] are left
  /// unchanged. With `gather`, and if the batch has scales, x is codes.
  void grouped_linear(const GroupedLinear& weights, const Tensor& x, const ExpertBatch& batch,
                      std::int64_t top_k, bool gather, bool scatter, const Tensor& out) {
    if constexpr (op_checks::enabled) op_checks::grouped_linear(weights, x, batch, gather, out);
    do_grouped_linear(weights, x, batch, top_k, gather, scatter, out);
  }

  /// The products of heads, each with a matrix and columns of its own: head h multiplies columns [h
  /// * k, (h + 1) * k) of x [rows, heads * k] with weights[h], to the first n of the columns [h *
  /// width, (h + 1) * width) of out [rows, heads * width]; the others are left unchanged.
  void heads_linear(const GroupedLinear& weights, const Columns& x, const Tensor& out) {
    if constexpr (op_checks::enabled) op_checks::heads_linear(weights, x, out);
    do_heads_linear(weights, x, out);
  }

  /// grouped_linear with gather, then silu_mul: out [tokens * top_k, n / 2], sorted. `scratch`
  /// [tokens * top_k, n] may be overwritten.
  void grouped_gate_up(const GroupedLinear& weights, const Tensor& x, const ExpertBatch& batch,
                       std::int64_t top_k, const Tensor& scratch, const Tensor& out) {
    if constexpr (op_checks::enabled) op_checks::grouped_gate_up(weights, x, batch, scratch, out);
    do_grouped_gate_up(weights, x, batch, top_k, scratch, out);
  }

  /// grouped_linear with gather, add_expert_bias if `bias` is not empty, and DenseOps::activate of
  /// what is gated: out [tokens * top_k, n / 2], sorted. False, and nothing is enqueued, if no
  /// kernel does all of it.
  bool grouped_activate(const GroupedLinear& weights, const Tensor& x, const ExpertBatch& batch,
                        std::int64_t top_k, const Tensor& bias, Activation activation,
                        const Tensor& out) {
    return do_grouped_activate(weights, x, batch, top_k, bias, activation, out);
  }

  /// x[i] += bias[e] for sorted row i of expert e. x [tokens * top_k, n], bias [local experts, n]
  /// f32.
  void add_expert_bias(const Tensor& x, const ExpertBatch& batch, const Tensor& bias) {
    if constexpr (op_checks::enabled) op_checks::add_expert_bias(x, batch, bias);
    do_add_expert_bias(x, batch, bias);
  }

  /// out[t] += sum over c in order of weights[t, c] * bias[ids[t, c]]. ids, weights [tokens,
  /// top_k], bias [all experts, hidden] f32, out [tokens, hidden].
  void add_chosen_bias(const Tensor& ids, const Tensor& weights, const Tensor& bias,
                       const Tensor& out) {
    if constexpr (op_checks::enabled) op_checks::add_chosen_bias(ids, weights, bias, out);
    do_add_chosen_bias(ids, weights, bias, out);
  }

  /// out[t] = sum over c in order of weights[t, c] * x[t * top_k + c]; the first product starts the
  /// chain. x [tokens * top_k, hidden] f32 or activation dtype, weights [tokens, top_k], out
  /// [tokens, hidden].
  void combine(const Tensor& x, const Tensor& weights, const Tensor& out) {
    if constexpr (op_checks::enabled) op_checks::combine(x, weights, out);
    do_combine(x, weights, out);
  }

  /// Like combine, for the choices among the `local` experts from choices.first_expert on; x is not
  /// read for the others. Zeros for a token without any.
  void combine_local(const Tensor& x, const ExpertChoices& choices, std::int64_t local,
                     const Tensor& out) {
    if constexpr (op_checks::enabled) op_checks::combine(x, choices.weights, out);
    do_combine_local(x, choices, local, out);
  }

  /// grouped_gate_up, grouped_linear with `down` and combine_local: out [tokens, hidden] is the
  /// local experts' contribution to x [tokens, hidden]. `choices` and `batch` are from
  /// route_and_permute. The output of `shared`, if there is one, is added; adds_shared_mlp must be
  /// true.
  void expert_mlp(const GroupedLinear& gate_up, const GroupedLinear& down, const Tensor& x,
                  const ExpertChoices& choices, const ExpertBatch& batch,
                  const ExpertScratch& scratch, const Tensor& out, const SharedMlp& shared = {}) {
    if constexpr (op_checks::enabled) {
      op_checks::expert_mlp(gate_up, down, x, choices, batch, scratch, out, shared);
    }
    do_expert_mlp(gate_up, down, x, choices, batch, scratch, out, shared);
  }
  /// True if expert_mlp takes `shared` for a pass of this many tokens with top_k choices.
  bool adds_shared_mlp(const SharedMlp& shared, const GroupedLinear& down, std::int64_t tokens,
                       std::int64_t top_k) const {
    return shared.down != nullptr && tokens <= max_tokens_with_shared_mlp &&
           do_adds_shared_mlp(shared, down, tokens, top_k);
  }

 private:
  virtual void do_add_expert_bias(const Tensor& x, const ExpertBatch& batch,
                                  const Tensor& bias) = 0;
  virtual void do_add_chosen_bias(const Tensor& ids, const Tensor& weights, const Tensor& bias,
                                  const Tensor& out) = 0;
  virtual void do_route(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
                        const Tensor& ids, const Tensor& weights) = 0;
  virtual void do_permute(const Tensor& ids, std::int64_t first_expert,
                          const ExpertBatch& batch) = 0;
  virtual void do_count_rows(const ExpertBatch& batch, const Tensor& counts) = 0;
  virtual void do_permute_received(const Tensor& ids, const Tensor& received_counts,
                                   std::int64_t first_expert, const ExpertBatch& batch,
                                   const Tensor& counts) = 0;
  virtual void do_route_and_permute(const Tensor& logits, const Tensor& bias,
                                    const RouterOptions& options, const ExpertChoices& choices,
                                    const ExpertBatch& batch, const Tensor& counts) = 0;
  virtual void do_route_tokens(const Linear& router, const Tensor& x, const Tensor& logits,
                               const Tensor& bias, const RouterOptions& options,
                               const ExpertChoices& choices, const ExpertBatch& batch,
                               const Tensor& counts) = 0;
  virtual bool do_takes_codes(const GroupedLinear& /*gate_up*/) const { return false; }
  virtual CodedTokens do_codes_of(const Tensor& /*x*/) { return {}; }
  virtual void do_grouped_linear(const GroupedLinear& weights, const Tensor& x,
                                 const ExpertBatch& batch, std::int64_t top_k, bool gather,
                                 bool scatter, const Tensor& out) = 0;
  virtual void do_heads_linear(const GroupedLinear& weights, const Columns& x,
                               const Tensor& out) = 0;
  virtual void do_grouped_gate_up(const GroupedLinear& weights, const Tensor& x,
                                  const ExpertBatch& batch, std::int64_t top_k,
                                  const Tensor& scratch, const Tensor& out) = 0;
  virtual bool do_grouped_activate(const GroupedLinear& /*weights*/, const Tensor& /*x*/,
                                   const ExpertBatch& /*batch*/, std::int64_t /*top_k*/,
                                   const Tensor& /*bias*/, Activation /*activation*/,
                                   const Tensor& /*out*/) {
    return false;
  }
  virtual void do_combine(const Tensor& x, const Tensor& weights, const Tensor& out) = 0;
  virtual void do_combine_local(const Tensor& x, const ExpertChoices& choices, std::int64_t local,
                                const Tensor& out) = 0;
  virtual void do_expert_mlp(const GroupedLinear& gate_up, const GroupedLinear& down,
                             const Tensor& x, const ExpertChoices& choices,
                             const ExpertBatch& batch, const ExpertScratch& scratch,
                             const Tensor& out, const SharedMlp& shared) = 0;
  virtual bool do_adds_shared_mlp(const SharedMlp& /*shared*/, const GroupedLinear& /*down*/,
                                  std::int64_t /*tokens*/, std::int64_t /*top_k*/) const {
    return false;
  }
};

}  // namespace troupe
