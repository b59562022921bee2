#pragma once

#include <vector>

#include "models/layers/embedding.hpp"
#include "models/layers/hidden_state.hpp"
#include "models/layers/layer_context.hpp"
#include "models/layers/norm.hpp"

namespace troupe {

/// The final norm and the projection to logits, of chosen rows only. The vocabulary is split over
/// the tensor ranks, or the ranks of a DenseGroup; every rank gets all of it, for all rows of its
/// replica or for its share of them.
class Head {
 public:
  /// A head tied to the embedding shares the table of `tied` if the device can; `tied` is the
  /// embedding if this rank has it, and outlives the head.
  static Result<Head> create(const LayerContext& context, const Embedding* tied);

  /// logits[i] = head(norm(hidden of token rows[i])). rows [n] i32 of the pass, of which this rank
  /// has `tokens`, n <= max_head_rows; logits [n, vocab] f32; with `divided` this rank's ceil_slice
  /// of these. Without `rows` those of all rows of `hidden`, which this rank holds. Errors: those
  /// of Collectives.
  Result<void> forward(HiddenState& hidden, std::int64_t tokens, const Tensor& rows,
                       const Tensor& logits, bool divided);
  /// With a DenseGroup: computes its part of the logits of other replicas' rows, in a pass where
  /// this one needs none. Errors: those of Collectives.
  Result<void> serve_others();
  std::size_t bytes() const { return norm_.bytes() + (owns_weight_ ? weight_->bytes() : 0); }

 private:
  Head(const LayerContext& context, Norm norm);

  Result<void> norm_rows(HiddenState& hidden, std::int64_t tokens, const Tensor& rows,
                         const Tensor& normed);
  /// Applies the config's logit_scale and logit_soft_cap.
  void scale(const Tensor& logits) const;
  Result<void> gather_logits(const Tensor& local, const Tensor& logits);
  /// The projection of the rows of all replicas.
  Result<void> project_for_all(const Tensor& normed, const Tensor& logits, bool divided);

  Ops& ops_;
  TensorGroup& tokens_;
  DenseGroup* dense_;  // or null
  ContextGroup& context_;
  Collectives* group_;  // null on one rank
  Workspace& space_;
  Norm norm_;
  float scale_;
  float soft_cap_;
  std::unique_ptr<Linear> weight_;  // [ceil(vocab / ranks), hidden]
  bool owns_weight_ = true;
  std::vector<std::int64_t> rows_per_rank_;  // rows of the gather; equal on all ranks
};

}  // namespace troupe
