#include "models/layers/attention/latent_attention.hpp"

#include "models/layers/attention/attention_shape.hpp"
#include "models/layers/weights/weight_rows.hpp"

namespace troupe {

namespace {

constexpr float inner_norm_eps = 1e-6F;

void append(std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& more) {
  rows.insert(rows.end(), more.begin(), more.end());
}

/// Views [tokens, heads * width] with a row per head, as grouped_linear takes it.
Tensor by_head(const Tensor& x, std::int64_t heads) {
  return x.reshaped({x[0] * heads, x[1] / heads});
}

}  // namespace

Result<std::unique_ptr<AttentionBlock>> LatentAttention::create(const LayerContext& context,
                                                                std::int64_t layer) {
  std::unique_ptr<LatentAttention> block(new LatentAttention(context));
  TROUPE_TRY(block->shape_, attention_shape(context.config, layer, context.weights.shard()));
  TROUPE_CHECK(block->load_query(context, layer));
  TROUPE_CHECK(block->load_latent(context, layer));
  TROUPE_TRY(block->output_, context.weights.linear({Parameter::output}, layer));
  return std::unique_ptr<AttentionBlock>(std::move(block));
}

Result<void> LatentAttention::load_query(const LayerContext& context, std::int64_t layer) {
  const Weights& weights = context.weights;
  Parameter up = Parameter::query;
  if (config_.query_rank > 0) {
    up = Parameter::query_up;
    TROUPE_TRY(query_down_, weights.linear({Parameter::query_down}, layer));
    TROUPE_TRY(query_down_norm_, weights.vector(Parameter::query_down_norm, layer));
  }
  TROUPE_TRY(const HostTensor query, weights.matrix({up}, layer));
  std::vector<std::int64_t> unrotated, rotated;
  for (std::int64_t head = 0; head < shape_.heads; ++head) {
    const std::int64_t first = head * (config_.unrotated_dim + config_.rotated_dim);
    append(unrotated, rows_to_rotate(first, config_.unrotated_dim, 0, false));
    append(rotated, rows_to_rotate(first + config_.unrotated_dim, config_.rotated_dim,
                                   config_.rotated_dim, config_.interleaved_rope));
  }
  TROUPE_TRY(unrotated_query_, ops_.weights().prepare(take_rows(query, unrotated), 1));
  TROUPE_TRY(rotated_query_, ops_.weights().prepare(take_rows(query, rotated), 1));
  return {};
}

Result<void> LatentAttention::load_latent(const LayerContext& context, std::int64_t layer) {
  const Weights& weights = context.weights;
  TROUPE_TRY(const HostTensor down, weights.matrix({Parameter::latent_down}, layer));
  std::vector<std::int64_t> rows = rows_to_rotate(0, config_.rank, 0, false);
  append(rows, rows_to_rotate(config_.rank, config_.rotated_dim, config_.rotated_dim,
                              config_.interleaved_rope));
  TROUPE_TRY(latent_down_, ops_.weights().prepare(take_rows(down, rows), 1));
  TROUPE_TRY(latent_norm_, weights.vector(Parameter::latent_norm, layer));

  TROUPE_TRY(const HostTensor up, weights.matrix({Parameter::latent_up}, layer));
  std::vector<HostTensor> keys;
  std::vector<Tensor> key_views, value_views;
  for (std::int64_t head = 0; head < shape_.heads; ++head) {
    const std::int64_t first = head * (config_.unrotated_dim + config_.value_dim);
    keys.push_back(transposed(up->rows(first, config_.unrotated_dim)));
    key_views.push_back(keys.back());
    value_views.push_back(up->rows(first + config_.unrotated_dim, config_.value_dim));
  }
  TROUPE_TRY(key_up_, ops_.weights().prepare_grouped(key_views, 1));
  TROUPE_TRY(value_up_, ops_.weights().prepare_grouped(value_views, 1));
  return {};
}

// Computes the query's latent and rotated parts in the workspace.
void LatentAttention::project_query(const Tensor& x, const ExpertBatch& heads) const {
  const std::int64_t tokens = x[0];
  Tensor source = x;
  if (query_down_ != nullptr) {
    source = space_.latent.query_down->rows(0, tokens);
    ops_.dense().linear(*query_down_, x, source);
    ops_.dense().rms_norm(source, query_down_norm_, inner_norm_eps, source);
  }
  const Tensor unrotated = space_.latent.unrotated_query->rows(0, tokens);
  const Tensor latent = space_.latent.latent_query->rows(0, tokens);
  ops_.dense().linear(*unrotated_query_, source, unrotated);
  ops_.dense().linear(*rotated_query_, source, space_.latent.rotated_query->rows(0, tokens));
  ops_.moe().grouped_linear(*key_up_, by_head(unrotated, shape_.heads), heads, 1, true, true,
                            by_head(latent, shape_.heads));
}

Result<PendingSum> LatentAttention::forward(const Tensor& x, const AttentionMetadata& pass,
                                            const Tensor& rope, const KvLayer& cache,
                                            const Tensor& out) const {
  const std::int64_t tokens = x[0];
  const LatentBuffers& space = space_.latent;
  const Tensor query = space_.query->rows(0, tokens);
  const Tensor attended = space_.attended->rows(0, tokens);
  const Tensor kv = space.kv->rows(0, tokens);
  const Tensor values = space.values->rows(0, tokens);
  const ExpertBatch heads{space.head_offsets, space.head_source->rows(0, tokens * shape_.heads)};
  ops_.moe().permute(space.head_ids->rows(0, tokens), 0, heads);
  project_query(x, heads);
  ops_.dense().linear(*latent_down_, x, kv);
  ops_.attention().latent_rope_store(space.latent_query->rows(0, tokens),
                                     space.rotated_query->rows(0, tokens), kv, latent_norm_,
                                     inner_norm_eps, rope, shape_, pass.whole(), cache, query);
  ops_.attention().attend(query, shape_, pass.whole(), cache, attended);
  ops_.moe().grouped_linear(*value_up_, by_head(attended, shape_.heads), heads, 1, true, true,
                            by_head(values, shape_.heads));
  return group_.defer_all_reduce(
      tokens, out, [&](const Tensor& sums) { ops_.dense().linear(*output_, values, sums); });
}

std::size_t LatentAttention::bytes() const {
  const std::size_t down = query_down_ == nullptr ? 0 : query_down_->bytes();
  return down + query_down_norm_->bytes() + unrotated_query_->bytes() + rotated_query_->bytes() +
         latent_down_->bytes() + latent_norm_->bytes() + key_up_->bytes() + value_up_->bytes() +
         output_->bytes();
}

}  // namespace troupe
