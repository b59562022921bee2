#include "models/layers/moe/router.hpp"

namespace troupe {

Result<std::unique_ptr<Router>> Router::create(const LayerContext& context, std::int64_t layer) {
  const MoeConfig& moe = *context.config.moe;
  std::unique_ptr<Router> router(new Router(context));
  router->options_ = {.top_k = moe.top_k,
                      .normalize = moe.normalize_top_k,
                      .sigmoid = moe.scoring == RouterScoring::sigmoid,
                      .groups = moe.groups,
                      .top_groups = moe.top_groups,
                      .best_score_groups = moe.best_score_groups,
                      .scale = static_cast<float>(moe.weight_scale)};
  TROUPE_TRY(router->weight_, context.weights.linear({Parameter::router}, layer));
  if (moe.choice_bias) {
    TROUPE_TRY(router->bias_, context.weights.vector(Parameter::router_bias, layer));
  }
  if (moe.logit_bias) {
    TROUPE_TRY(router->logit_bias_, context.weights.vector(Parameter::router_logit_bias, layer));
  }
  return router;
}

Tensor Router::logits_of(const Tensor& x) const {
  const Tensor logits = space_.router_logits->rows(0, x[0]);
  ops_.dense().linear(*weight_, x, logits);
  if (!logit_bias_->empty()) ops_.dense().add_bias(logits, logit_bias_);
  return logits;
}

void Router::choose(const Tensor& x, const Tensor& ids, const Tensor& weights) const {
  ops_.moe().route(logits_of(x), bias_, options_, ids, weights);
}

void Router::choose(const Tensor& x, const ExpertChoices& choices, const ExpertBatch& batch,
                    const Tensor& counts) const {
  if (!logit_bias_->empty()) {
    ops_.moe().route_and_permute(logits_of(x), bias_, options_, choices, batch, counts);
    return;
  }
  const Tensor logits = space_.router_logits->rows(0, x[0]);
  ops_.moe().route_tokens(*weight_, x, logits, bias_, options_, choices, batch, counts);
}

}  // namespace troupe
