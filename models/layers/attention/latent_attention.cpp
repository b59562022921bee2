#include "models/layers/attention/latent_attention.hpp"

#include "models/layers/attention/attention_shape.hpp"
#include "models/layers/weights/weight_rows.hpp"

namespace troupe {

namespace {

constexpr float inner_norm_eps = 1e-6F;

void append(std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& more) {
  rows.insert(rows.end(), more.begin(), more.end());
}

}  // namespace

Result<std::unique_ptr<AttentionBlock>> LatentAttention::create(const LayerContext& context,
                                                                std::int64_t layer) {
  std::unique_ptr<LatentAttention> block(new LatentAttention(context));
  TROUPE_TRY(block->shape_, attention_shape(context.config, layer, context.weights.shard()));
  TROUPE_CHECK(block->load_projections(context, layer));
  TROUPE_CHECK(block->load_heads(context, layer));
  if (block->config_.index_top_k > 0) {
    TROUPE_TRY(auto indexer, LightningIndexer::create(context, layer));
    block->indexer_.emplace(std::move(indexer));
  }
  TROUPE_TRY(block->output_, context.weights.linear({Parameter::output}, layer));
  return std::unique_ptr<AttentionBlock>(std::move(block));
}

Result<void> LatentAttention::load_projections(const LayerContext& context, std::int64_t layer) {
  const Weights& weights = context.weights;
  const bool has_query_down = config_.query_rank > 0;
  const Parameter up = has_query_down ? Parameter::query_up : Parameter::query;
  TROUPE_TRY(const HostTensor stored_query, weights.matrix({up}, layer));
  std::vector<std::int64_t> rows, rotated;
  for (std::int64_t head = 0; head < shape_.heads; ++head) {
    const std::int64_t first = head * (config_.unrotated_dim + config_.rotated_dim);
    append(rows, rows_to_rotate(first, config_.unrotated_dim, 0, false));
    append(rotated, rows_to_rotate(first + config_.unrotated_dim, config_.rotated_dim,
                                   config_.rotated_dim, config_.interleaved_rope));
  }
  append(rows, rotated);
  const HostTensor query = take_rows(stored_query, rows);

  TROUPE_TRY(const HostTensor stored_latent, weights.matrix({Parameter::latent_down}, layer));
  std::vector<std::int64_t> latent_rows = rows_to_rotate(0, config_.rank, 0, false);
  append(latent_rows, rows_to_rotate(config_.rank, config_.rotated_dim, config_.rotated_dim,
                                     config_.interleaved_rope));
  const HostTensor latent = take_rows(stored_latent, latent_rows);
  TROUPE_TRY(latent_norm_, weights.vector(Parameter::latent_norm, layer));

  if (!has_query_down) {
    TROUPE_TRY(projection_, weights.prepare({Parameter::query, Parameter::latent_down}, layer,
                                            stack_rows(query, latent)));
    return {};
  }
  TROUPE_TRY(query_down_, weights.linear({Parameter::query_down}, layer));
  TROUPE_TRY(query_down_norm_, weights.vector(Parameter::query_down_norm, layer));
  TROUPE_TRY(projection_, weights.prepare({Parameter::query_up}, layer, query));
  TROUPE_TRY(latent_down_, weights.prepare({Parameter::latent_down}, layer, latent));
  return {};
}

Result<void> LatentAttention::load_heads(const LayerContext& context, std::int64_t layer) {
  const Weights& weights = context.weights;
  TROUPE_TRY(const HostTensor up, weights.matrix({Parameter::latent_up}, layer));
  std::vector<HostTensor> keys;
  std::vector<Tensor> key_views, value_views;
  for (std::int64_t head = 0; head < shape_.heads; ++head) {
    const std::int64_t first = head * (config_.unrotated_dim + config_.value_dim);
    keys.push_back(transposed(up->rows(first, config_.unrotated_dim)));
    key_views.push_back(keys.back());
    value_views.push_back(up->rows(first + config_.unrotated_dim, config_.value_dim));
  }
  TROUPE_TRY(key_up_, ops_.weights().prepare_grouped(key_views, 1, WeightEncoding::plain));
  TROUPE_TRY(value_up_, ops_.weights().prepare_grouped(value_views, 1, WeightEncoding::plain));
  weights.note({Parameter::latent_up}, layer, *key_up_, weights.why_decoded());
  return {};
}

LatentAttention::Projected LatentAttention::project(const Tensor& x) const {
  const std::int64_t tokens = x[0], unrotated = shape_.heads * config_.unrotated_dim;
  const std::int64_t rotated = shape_.heads * config_.rotated_dim;
  const Tensor projected = space_.latent.projected->rows(0, tokens);
  const Columns first(projected, 0, unrotated), second(projected, unrotated, rotated);
  if (query_down_ == nullptr) {
    ops_.dense().linear(*projection_, x, projected);
    return {first, second, {projected, unrotated + rotated, shape_.head_dim}};
  }
  const Tensor down = space_.latent.query_down->rows(0, tokens);
  const Tensor kv = space_.latent.kv->rows(0, tokens);
  ops_.dense().linear(*query_down_, x, down);
  ops_.dense().rms_norm(down, query_down_norm_, inner_norm_eps, down);
  ops_.dense().linear(*projection_, down, projected);
  ops_.dense().linear(*latent_down_, x, kv);
  return {first, second, kv};
}

Result<PendingSum> LatentAttention::forward(const Tensor& x, const AttentionMetadata& pass,
                                            const Tensor& rope, const KvLayer& cache,
                                            const Tensor& out, const HeadRows* heads) const {
  const std::int64_t tokens = x[0];
  const Tensor query = space_.query->rows(0, tokens);
  if (heads != nullptr) TROUPE_CHECK(group_.await_rows());
  const Projected projected = project(x);
  ops_.moe().heads_linear(*key_up_, projected.unrotated, query);
  ops_.attention().latent_rope_store(projected.rotated, projected.kv, latent_norm_, inner_norm_eps,
                                     rope, shape_, pass.whole(), cache, query);
  if (context_.divides()) {
    TROUPE_CHECK(context_.all_gather_kv(pass.kv_slots_of_pass(), cache));
  }
  IndexQueries index;
  if (indexer_) {
    index = indexer_->project(x, space_.latent.query_down->rows(0, tokens), rope, shape_,
                              pass.whole(), cache);
  }
  if (heads == nullptr) return attend(query, index, pass.whole(), cache, out);
  if (heads->count() == 0) return PendingSum();
  // Where the projections were, which are stored: they are narrower, but of more rows.
  const Tensor chosen = first_rows(space_.latent.projected, heads->count(), query[1]);
  ops_.dense().gather_rows(query, heads->rows, chosen);
  return attend(chosen, index, heads->attention, cache, out);
}

Result<PendingSum> LatentAttention::attend(const Tensor& query, const IndexQueries& index,
                                           const AttentionBatch& batch, const KvLayer& cache,
                                           const Tensor& out) const {
  const std::int64_t tokens = query[0];
  const Tensor attended = space_.attended->rows(0, tokens);
  const Tensor values = space_.latent.values->rows(0, tokens);
  if (indexer_) {
    ops_.attention().attend_sparse(query, index, shape_, batch, cache, attended);
  } else {
    ops_.attention().attend(query, shape_, batch, cache, attended);
  }
  ops_.moe().heads_linear(*value_up_, attended, values);
  return group_.defer_all_reduce(
      tokens, out, [&](const Tensor& sums) { ops_.dense().linear(*output_, values, sums); });
}

std::size_t LatentAttention::bytes() const {
  const auto of = [](const std::unique_ptr<Linear>& matrix) {
    return matrix == nullptr ? 0 : matrix->bytes();
  };
  return of(projection_) + of(query_down_) + query_down_norm_->bytes() + of(latent_down_) +
         latent_norm_->bytes() + key_up_->bytes() + value_up_->bytes() + of(output_) +
         (indexer_ ? indexer_->bytes() : 0);
}

}  // namespace troupe
