#include "models/layers/norm.hpp"

namespace troupe {

Result<HostTensor> norm_weight(const LayerContext& context, Parameter weight, std::int64_t layer) {
  TROUPE_TRY(HostTensor values, context.weights.host_vector({weight}, layer));
  if (context.config.norm.adds_one) {
    for (float& value : values->span<float>()) value += 1.0F;
  }
  return values;
}

Result<Norm> Norm::create(const LayerContext& context, Parameter weight, Parameter bias,
                          std::int64_t layer) {
  Norm norm(context.config.norm);
  TROUPE_TRY(const HostTensor values, norm_weight(context, weight, layer));
  TROUPE_TRY(norm.weight_, context.weights.upload(values));
  if (context.config.norm.has_bias) {
    TROUPE_TRY(norm.bias_, context.weights.vector(bias, layer));
  }
  return norm;
}

void Norm::apply(Ops& ops, const Tensor& x, const Tensor& out, const Linear* next) const {
  if (config_.kind == NormConfig::Kind::rms) {
    ops.dense().rms_norm(x, weight_, config_.eps, out, next);
  } else {
    ops.dense().layer_norm(x, weight_, bias_, config_.eps, out);
  }
}

void Norm::add_and_apply(Ops& ops, const Tensor& residual, const Tensor& x, const Tensor& out,
                         const Linear* next) const {
  if (config_.kind == NormConfig::Kind::rms) {
    ops.dense().add_rms_norm(residual, x, weight_, config_.eps, out, next);
    return;
  }
  ops.dense().add(residual, x);
  ops.dense().layer_norm(residual, weight_, bias_, config_.eps, out);
}

}  // namespace troupe
