#pragma once

#include <cstddef>
#include <memory>

#include "models/layers/layer_context.hpp"
#include "models/ops/ops.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The lightning indexer of a layer with sparse attention (DeepSeek-AI 2025, DeepSeek-V3.2, section
/// 2.1): projects index queries from the query's low-rank vector, and one index key and a weight
/// for each index head from the token; keys pass a LayerNorm. Every tensor rank computes all of it,
/// so that all choose the same keys. The scores' factor 1 / sqrt(index_dim) and the weights' factor
/// 1 / sqrt(index_heads) do not change their order and are left out.
class LightningIndexer {
 public:
  static Result<LightningIndexer> create(const LayerContext& context, std::int64_t layer);

  /// Writes the index keys of the batch's tokens to the cache, and returns their index queries in
  /// buffers of the workspace. x [tokens, hidden], query_down [tokens, query_rank] normalised.
  IndexQueries project(const Tensor& x, const Tensor& query_down, const Tensor& rope,
                       const AttentionShape& shape, const AttentionBatch& batch,
                       const KvLayer& cache) const;
  std::size_t bytes() const;

 private:
  explicit LightningIndexer(const LayerContext& context)
      : ops_(&context.ops), space_(&context.space) {}

  Ops* ops_;
  Workspace* space_;
  std::unique_ptr<Linear> query_;    // [index_heads * index_dim, query_rank]
  std::unique_ptr<Linear> key_;      // [index_dim, hidden]
  std::unique_ptr<Linear> weights_;  // [index_heads, hidden]
  DeviceTensor key_norm_;            // [index_dim] f32
  DeviceTensor key_norm_bias_;       // [index_dim] f32
};

}  // namespace troupe
