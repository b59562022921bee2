#pragma once

#include "models/layers/layer_context.hpp"

namespace troupe {

/// RMSNorm or LayerNorm, as the model's config says.
class Norm {
 public:
  /// `bias` is read only if the config's norms have one.
  static Result<Norm> create(const LayerContext& context, Parameter weight, Parameter bias,
                             std::int64_t layer);

  /// out = norm(x), row by row. x, out [rows, hidden], which may be the same. `next`: as in
  /// DenseOps::rms_norm.
  void apply(Ops& ops, const Tensor& x, const Tensor& out, const Linear* next = nullptr) const;
  /// residual += x, then out = norm(residual).
  void add_and_apply(Ops& ops, const Tensor& residual, const Tensor& x, const Tensor& out,
                     const Linear* next = nullptr) const;

  const Tensor& weight() const { return weight_.view(); }  ///< [hidden] f32
  float eps() const { return config_.eps; }
  std::size_t bytes() const { return weight_->bytes() + bias_->bytes(); }

 private:
  explicit Norm(const NormConfig& config) : config_(config) {}

  NormConfig config_;
  DeviceTensor weight_;  // [hidden] f32
  DeviceTensor bias_;    // [hidden] f32, or empty
};

/// The vector `weight` of a norm, with one added if checkpoints store one less.
Result<HostTensor> norm_weight(const LayerContext& context, Parameter weight, std::int64_t layer);

}  // namespace troupe
