#include "models/layers/attention/attention.hpp"

#include <utility>

#include "models/layers/attention/attention_shape.hpp"

namespace troupe {

Result<std::unique_ptr<AttentionBlock>> Attention::create(const LayerContext& context,
                                                          std::int64_t layer) {
  using enum Parameter;
  const Weights& weights = context.weights;
  const ModelConfig& config = context.config;
  std::unique_ptr<Attention> block(new Attention(context));
  block->norm_eps_ = config.norm.eps;
  TROUPE_TRY(block->shape_, attention_shape(config, layer, weights.shard()));
  TROUPE_CHECK(weights.set_kv_scales(layer, block->shape_));
  TROUPE_TRY(auto projection, HeadProjection::load(context, weights, block->shape_, layer));
  block->projection_.emplace(std::move(projection));
  TROUPE_CHECK(block->load_norms(context, layer));
  TROUPE_TRY(block->output_, weights.linear({output}, layer));
  if (config.output_bias) {
    TROUPE_TRY(block->output_bias_, weights.vector(output_bias, layer));
  }
  if (config.attention_sinks) {
    TROUPE_TRY(block->sinks_, weights.vector(sinks, layer));
    block->shape_.sinks = block->sinks_;
  }
  return std::unique_ptr<AttentionBlock>(std::move(block));
}

Result<void> Attention::load_norms(const LayerContext& context, std::int64_t layer) {
  using enum Parameter;
  const ModelConfig& config = context.config;
  if (config.query_key_norm == QueryKeyNorm::none) return {};
  norms_together_ = config.query_key_norm == QueryKeyNorm::projection;
  kv_copies_ = static_cast<int>(shape_.kv_heads * group_.size() / config.kv_heads);
  TROUPE_TRY(query_norm_,
             load_head_norm(context, query_norm, norms_together_ ? shape_.heads : 1, layer));
  TROUPE_TRY(key_norm_,
             load_head_norm(context, key_norm, norms_together_ ? shape_.kv_heads : 1, layer));
  return {};
}

// Normalises all queries of a token together, and all keys. Ranks exchange the sum of squares of
// each of their heads, and all add them up in the order of the heads.
Result<void> Attention::norm_projections(const Tensor& qkv) const {
  const std::int64_t tokens = qkv[0];
  const Tensor own = space_.square_sums->rows(0, tokens);
  Tensor all = own;
  ops_.attention().square_sums(qkv, shape_, own);
  if (group_.size() > 1) {
    all = space_.all_square_sums->rows(0, group_.size() * tokens);
    TROUPE_CHECK(group_.all_gather(own, all));
  }
  ops_.attention().norm_projections(qkv, shape_,
                                    {.square_sums = all,
                                     .ranks = group_.size(),
                                     .kv_copies = kv_copies_,
                                     .q_weight = query_norm_,
                                     .k_weight = key_norm_,
                                     .eps = norm_eps_});
  return {};
}

void Attention::store(const Tensor& qkv, const AttentionBatch& batch, const Tensor& rope,
                      const KvLayer& cache, Slice rows) const {
  const Tensor query = space_.query->rows(rows.begin, rows.count);
  const bool by_head = !norms_together_;
  ops_.attention().norm_rope_store(qkv, by_head ? query_norm_.view() : Tensor(),
                                   by_head ? key_norm_.view() : Tensor(), norm_eps_, rope, shape_,
                                   batch, cache, query);
  if (!cache.weights.empty()) {
    ops_.attention().accumulate_weights(query, shape_, batch, cache);
  }
}

void Attention::attend(const AttentionBatch& batch, const KvLayer& cache, Slice rows,
                       const Tensor& sums) const {
  const Tensor query = space_.query->rows(rows.begin, rows.count);
  const Tensor attended = space_.attended->rows(rows.begin, rows.count);
  ops_.attention().attend(query, shape_, batch, cache, attended);
  ops_.dense().linear(*output_, attended, sums);
}

Result<PendingSum> Attention::forward(const Tensor& x, const AttentionMetadata& pass,
                                      const Tensor& rope, const KvLayer& cache, const Tensor& out,
                                      const HeadRows* heads) const {
  // What ranks exchange is computed for all rows before any of them attends.
  const bool projects_first = norms_together_ || context_.divides() || heads != nullptr;
  const Slice all{0, x[0]};
  if (heads != nullptr) TROUPE_CHECK(group_.await_rows());
  if (projects_first) projection_->apply(ops_, x, space_.qkv->rows(0, x[0]));
  if (norms_together_) TROUPE_CHECK(norm_projections(space_.qkv->rows(0, x[0])));
  if (heads != nullptr || context_.divides()) {
    store(space_.qkv->rows(0, x[0]), pass.whole(), rope, cache, all);
  }
  if (context_.divides()) TROUPE_CHECK(context_.all_gather_kv(pass.kv_slots_of_pass(), cache));
  if (heads != nullptr) return attend_heads(*heads, cache, out);
  const auto compute = [&](Slice rows, const Tensor& sums) {
    const Tensor qkv = space_.qkv->rows(rows.begin, rows.count);
    if (!projects_first) projection_->apply(ops_, x.rows(rows.begin, rows.count), qkv);
    if (!context_.divides()) store(qkv, pass.of(rows), rope, cache, rows);
    attend(pass.of(rows), cache, rows, sums);
  };
  TROUPE_TRY(PendingSum sum, group_.defer_all_reduce_by_parts(x[0], out, compute));
  return add_bias(std::move(sum), out);
}

Result<PendingSum> Attention::attend_heads(const HeadRows& heads, const KvLayer& cache,
                                           const Tensor& out) const {
  const std::int64_t rows = heads.count(), width = shape_.heads * shape_.head_dim;
  if (rows == 0) return PendingSum();
  const Tensor query = first_rows(space_.qkv, rows, width);  // what was there is stored
  ops_.dense().gather_rows(space_.query, heads.rows, query);
  const Tensor attended = space_.attended->rows(0, rows);
  ops_.attention().attend(query, shape_, heads.attention, cache, attended);
  TROUPE_TRY(PendingSum sum, group_.defer_all_reduce(rows, out, [&](const Tensor& sums) {
    ops_.dense().linear(*output_, attended, sums);
  }));
  return add_bias(std::move(sum), out);
}

Result<PendingSum> Attention::add_bias(PendingSum sum, const Tensor& out) const {
  if (output_bias_->empty()) return sum;
  TROUPE_CHECK(group_.complete(std::move(sum), out));
  ops_.dense().add_bias(out, output_bias_);
  return PendingSum();
}

std::size_t Attention::bytes() const {
  return projection_->bytes() + output_->bytes() + output_bias_->bytes() + query_norm_->bytes() +
         key_norm_->bytes() + sinks_->bytes();
}

}  // namespace troupe
