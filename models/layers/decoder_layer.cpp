#include "models/layers/decoder_layer.hpp"

namespace troupe {

Result<DecoderLayer> DecoderLayer::create(const LayerContext& context, std::int64_t layer,
                                          std::unique_ptr<AttentionBlock> attention,
                                          std::unique_ptr<FeedForward> feed_forward) {
  DecoderLayer made(context, std::move(attention), std::move(feed_forward));
  TROUPE_TRY(made.attention_norm_, context.weights.vector(Parameter::attention_norm, layer));
  TROUPE_TRY(made.mlp_norm_, context.weights.vector(Parameter::mlp_norm, layer));
  return made;
}

Result<void> DecoderLayer::forward(HiddenState& hidden, const AttentionMetadata& pass,
                                   const Tensor& rope, const KvLayer& cache) const {
  const std::int64_t tokens = pass.whole().positions[0];
  const Tensor normed = group_.normed_rows(space_.normed, tokens);
  if (tokens == 0) {
    TROUPE_TRY(hidden.sum, feed_forward_->forward(normed, hidden.update));
    return {};
  }
  TROUPE_CHECK(group_.add_and_norm(ops_, hidden, {attention_norm_, norm_eps_, normed, true}));
  TROUPE_TRY(hidden.sum, attention_->forward(normed, pass, rope, cache, hidden.update));
  hidden.has_update = true;
  TROUPE_CHECK(group_.add_and_norm(
      ops_, hidden, {mlp_norm_, norm_eps_, normed, feed_forward_->reads_all_tokens()}));
  TROUPE_TRY(hidden.sum, feed_forward_->forward(normed, hidden.update));
  hidden.has_update = true;
  return {};
}

std::size_t DecoderLayer::bytes() const {
  return attention_->bytes() + feed_forward_->bytes() + attention_norm_->bytes() +
         mlp_norm_->bytes();
}

}  // namespace troupe
