#pragma once

#include <optional>

#include "models/layers/attention/attention_block.hpp"
#include "models/layers/feed_forward.hpp"
#include "models/layers/hidden_state.hpp"
#include "models/layers/layer_context.hpp"
#include "models/layers/norm.hpp"

namespace troupe {

/// One layer: attention, then an MLP or experts. Usually x += attention(norm(x)), then x +=
/// feed_forward(norm(x)); LayerForm has the variants.
class DecoderLayer {
 public:
  /// Builds the blocks that the config has in layer `layer`.
  static Result<DecoderLayer> create(const LayerContext& context, std::int64_t layer);

  /// `hidden` holds this rank's own tokens of the pass. A pass without tokens serves other
  /// replicas, whose tokens may reach this rank's experts. With `heads` (AttentionBlock), `hidden`
  /// holds these rows only afterwards. Errors: those of Collectives.
  Result<void> forward(HiddenState& hidden, const AttentionMetadata& pass, const Tensor& rope,
                       const KvLayer& cache, const HeadRows* heads = nullptr) const;
  /// See FeedForward::rows_per_expert.
  Tensor rows_per_expert() const { return feed_forward_->rows_per_expert(); }
  std::size_t bytes() const;

 private:
  explicit DecoderLayer(const LayerContext& context)
      : ops_(context.ops),
        group_(context.tensor),
        context_(context.context),
        space_(context.space),
        form_(context.config.form) {}

  Result<void> load_norms(const LayerContext& context, std::int64_t layer);
  /// Leaves the rows that need logits of the residual stream, and of the `input` that the MLP also
  /// reads.
  void keep_rows(const HeadRows& heads, HiddenState& hidden, Tensor& input) const;
  /// Returns the input of a block after `norm`, which may be absent, in `normed` or elsewhere.
  /// `next`: the block's only_reader, if it comes next.
  Result<Tensor> read(HiddenState& hidden, const std::optional<Norm>& norm, const Tensor& normed,
                      bool of_all_rows, const Linear* next) const;
  /// Does what follows a block, whose output is hidden.update or its pending sum.
  Result<void> finish(HiddenState& hidden, const std::optional<Norm>& post_norm) const;
  /// Adds attention's output where the MLP reads what was before it, and returns its input.
  /// `attended`: attention's input.
  Result<Tensor> read_before_attention(HiddenState& hidden, const Tensor& attended,
                                       const Tensor& normed) const;

  Ops& ops_;
  TensorGroup& group_;
  ContextGroup& context_;
  Workspace& space_;
  LayerForm form_;
  std::unique_ptr<AttentionBlock> attention_;
  std::unique_ptr<FeedForward> feed_forward_;
  std::optional<Norm> attention_norm_;
  std::optional<Norm> mlp_norm_;
  std::optional<Norm> attention_post_norm_;
  std::optional<Norm> mlp_post_norm_;
};

}  // namespace troupe
