#pragma once

#include <cstddef>
#include <memory>

#include "models/layers/layer_context.hpp"

namespace troupe {

/// True if the rows of queries and keys are rearranged when they are loaded, so that codes become
/// numbers.
bool rearranges(const ModelConfig& config);

/// The projection of rows to the queries, keys and values of some heads of a layer.
///
/// Devices rotate whole heads in halves. If weights store the elements of a rotation side by side,
/// or only a part of a head is rotated, each head's rows of queries and keys are rearranged when
/// they are loaded, which changes no score, and rope_table leaves the other elements as they are.
class HeadProjection {
 public:
  /// The heads of `shape`, which are those of the shard of `weights`. Errors: those of Weights.
  static Result<HeadProjection> load(const LayerContext& context, const Weights& weights,
                                     const AttentionShape& shape, std::int64_t layer);

  /// out [tokens, (heads + 2 kv_heads) * head_dim] = the projections of x [tokens, hidden].
  void apply(Ops& ops, const Tensor& x, const Tensor& out) const;
  /// The matrix that apply() multiplies x with.
  const Linear& qkv() const { return *qkv_; }
  std::int64_t width() const { return qkv_->out_features(); }
  std::size_t bytes() const { return qkv_->bytes() + bias_->bytes(); }

 private:
  std::unique_ptr<Linear> qkv_;  // [(heads + 2 kv_heads) * head_dim, hidden]
  DeviceTensor bias_;            // [(heads + 2 kv_heads) * head_dim] f32, or empty
};

/// Loads the norm weights of `heads` heads, or of one that is the same for all of them, in the
/// order in which devices rotate a head's elements. Errors: those of Weights.
Result<DeviceTensor> load_head_norm(const LayerContext& context, Parameter parameter,
                                    std::int64_t heads, std::int64_t layer);

}  // namespace troupe
