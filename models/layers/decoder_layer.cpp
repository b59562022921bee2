#include "models/layers/decoder_layer.hpp"

#include "models/layers/attention/attention.hpp"
#include "models/layers/attention/latent_attention.hpp"
#include "models/layers/attention/ulysses_attention.hpp"
#include "models/layers/dense_mlp.hpp"
#include "models/layers/moe/moe.hpp"

namespace troupe {

Result<DecoderLayer> DecoderLayer::create(const LayerContext& context, std::int64_t layer) {
  DecoderLayer made(context);
  const auto create_attention = context.config.latent            ? LatentAttention::create
                                : context.context.shares_heads() ? UlyssesAttention::create
                                                                 : Attention::create;
  TROUPE_TRY(made.attention_, create_attention(context, layer));
  const MlpParameters dense{.with_biases = context.config.mlp_bias};
  TROUPE_TRY(made.feed_forward_, context.config.is_sparse(layer)
                                     ? make_moe(context, layer)
                                     : DenseMlp::create(context, layer, dense));
  TROUPE_CHECK(made.load_norms(context, layer));
  return made;
}

Result<void> DecoderLayer::load_norms(const LayerContext& context, std::int64_t layer) {
  using enum Parameter;
  if (form_.pre_norms) {
    TROUPE_TRY(attention_norm_, Norm::create(context, attention_norm, attention_norm_bias, layer));
    if (!form_.parallel || form_.own_mlp_norm) {
      TROUPE_TRY(mlp_norm_, Norm::create(context, mlp_norm, mlp_norm_bias, layer));
    }
  }
  if (form_.post_norms) {
    TROUPE_TRY(attention_post_norm_,
               Norm::create(context, attention_post_norm, attention_norm_bias, layer));
    TROUPE_TRY(mlp_post_norm_, Norm::create(context, mlp_post_norm, mlp_norm_bias, layer));
  }
  return {};
}

Result<void> DecoderLayer::forward(HiddenState& hidden, const AttentionMetadata& pass,
                                   const Tensor& rope, const KvLayer& cache,
                                   const HeadRows* heads) const {
  const std::int64_t tokens = context_.own_rows().count;
  Tensor normed = group_.normed_rows(space_.normed, tokens);
  if (tokens == 0) {
    TROUPE_TRY(hidden.sum, feed_forward_->forward(normed, hidden.update));
    return {};
  }
  const Linear* const qkv = form_.parallel ? nullptr : attention_->only_reader();
  TROUPE_TRY(Tensor input, read(hidden, attention_norm_, normed, true, qkv));
  if (heads != nullptr) hidden.update = space_.head_update->rows(0, heads->count());
  TROUPE_TRY(hidden.sum, attention_->forward(input, pass, rope, cache, hidden.update, heads));
  if (heads != nullptr) {
    if (heads->count() == 0) {  // other replicas may need this rank's part of the MLP
      TROUPE_TRY(hidden.sum, feed_forward_->forward(normed.rows(0, 0), hidden.update));
      return {};
    }
    keep_rows(*heads, hidden, input);
    normed = group_.normed_rows(space_.normed, heads->count());
  }
  hidden.has_update = true;
  TROUPE_CHECK(finish(hidden, attention_post_norm_));
  if (form_.parallel) {
    TROUPE_TRY(input, read_before_attention(hidden, input, normed));
  } else {
    TROUPE_TRY(input, read(hidden, mlp_norm_, normed, feed_forward_->reads_all_tokens(),
                           feed_forward_->only_reader(normed[0])));
  }
  TROUPE_TRY(hidden.sum, feed_forward_->forward(input, hidden.update));
  hidden.has_update = true;
  return finish(hidden, mlp_post_norm_);
}

void DecoderLayer::keep_rows(const HeadRows& heads, HiddenState& hidden, Tensor& input) const {
  const Tensor residual = space_.head_residual->rows(0, heads.count());
  ops_.dense().gather_rows(hidden.residual, heads.rows, residual);
  hidden.residual = residual;
  if (!form_.parallel) return;
  const Tensor rows = space_.head_normed->rows(0, heads.count());
  ops_.dense().gather_rows(input, heads.rows, rows);
  input = rows;
}

Result<Tensor> DecoderLayer::read(HiddenState& hidden, const std::optional<Norm>& norm,
                                  const Tensor& normed, bool of_all_rows,
                                  const Linear* next) const {
  if (!norm) return group_.add_and_gather(ops_, hidden, normed);
  TROUPE_CHECK(group_.add_and_norm(ops_, hidden, {*norm, normed, of_all_rows, next}));
  return normed;
}

Result<void> DecoderLayer::finish(HiddenState& hidden, const std::optional<Norm>& post_norm) const {
  const bool scales = form_.residual_scale != 1.0F;
  if (!post_norm && !scales) return {};
  TROUPE_CHECK(group_.complete(hidden));
  if (post_norm) post_norm->apply(ops_, hidden.update, hidden.update);
  if (scales) ops_.dense().scale(hidden.update, form_.residual_scale, 0.0F);
  return {};
}

Result<Tensor> DecoderLayer::read_before_attention(HiddenState& hidden, const Tensor& attended,
                                                   const Tensor& normed) const {
  TROUPE_CHECK(group_.complete(hidden));
  Tensor input = attended;
  if (mlp_norm_) {
    HiddenState before{hidden.residual, hidden.update};
    TROUPE_TRY(input, read(before, mlp_norm_, normed, true, nullptr));
  }
  ops_.dense().add(hidden.residual, hidden.update);
  hidden.has_update = false;
  return input;
}

std::size_t DecoderLayer::bytes() const {
  std::size_t bytes = attention_->bytes() + feed_forward_->bytes();
  for (const auto* norm : {&attention_norm_, &mlp_norm_, &attention_post_norm_, &mlp_post_norm_}) {
    if (*norm) bytes += (*norm)->bytes();
  }
  return bytes;
}

}  // namespace troupe
