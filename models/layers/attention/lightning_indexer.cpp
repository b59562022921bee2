#include "models/layers/attention/lightning_indexer.hpp"

namespace troupe {

namespace {

constexpr float key_norm_eps = 1e-6F;

}  // namespace

Result<LightningIndexer> LightningIndexer::create(const LayerContext& context, std::int64_t layer) {
  using enum Parameter;
  LightningIndexer indexer(context);
  TROUPE_TRY(indexer.query_, context.weights.linear({index_query}, layer));
  TROUPE_TRY(indexer.key_, context.weights.linear({index_key}, layer));
  TROUPE_TRY(indexer.weights_, context.weights.linear({index_weights}, layer));
  TROUPE_TRY(indexer.key_norm_, context.weights.vector(index_key_norm, layer));
  TROUPE_TRY(indexer.key_norm_bias_, context.weights.vector(index_key_norm_bias, layer));
  return indexer;
}

IndexQueries LightningIndexer::project(const Tensor& x, const Tensor& query_down,
                                       const Tensor& rope, const AttentionShape& shape,
                                       const AttentionBatch& batch, const KvLayer& cache) const {
  const std::int64_t tokens = x[0];
  const IndexQueries index{.query = space_->latent.index_query->rows(0, tokens),
                           .weights = space_->latent.index_weights->rows(0, tokens)};
  const Tensor key = space_->latent.index_key->rows(0, tokens);
  ops_->dense().linear(*query_, query_down, index.query);
  ops_->dense().linear(*weights_, x, index.weights);
  ops_->dense().linear(*key_, x, key);
  ops_->dense().layer_norm(key, key_norm_, key_norm_bias_, key_norm_eps, key);
  ops_->attention().index_rope_store(index, key, rope, shape, batch, cache);
  return index;
}

std::size_t LightningIndexer::bytes() const {
  return query_->bytes() + key_->bytes() + weights_->bytes() + key_norm_->bytes() +
         key_norm_bias_->bytes();
}

}  // namespace troupe
