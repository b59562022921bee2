#pragma once

#include <cstdint>
#include <string>

#include "models/checkpoint/checkpoint.hpp"
#include "models/config/model_config.hpp"
#include "models/ops/attention_ops.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The fixed scales of a layer's KV cache in E4M3: number = code * scale.
struct KvScales {
  float key = 1.0F;
  float value = 1.0F;
};

/// Tensors that hold a layer's scales beside its attention, as compressed-tensors names them.
struct KvScaleNames {
  std::string key;    ///< "model.layers.0.self_attn.k_scale"
  std::string value;  ///< "model.layers.0.self_attn.v_scale"
};
KvScaleNames kv_scale_names(const ModelConfig& config, std::int64_t layer);

/// Errors: unsupported for latent attention, whose cache has no such scales, and for checkpoints
/// whose format has no place for them: any but compressed-tensors.
Result<void> check_kv_scales(const ModelConfig& config, const Checkpoint& checkpoint);

/// The largest magnitudes of a layer's keys, rotated as they are cached, and of its values.
class KvRange {
 public:
  /// Takes in a cache of f32.
  void add(const KvLayer& cache);
  /// Scales with which these are the largest code, 448; 1 where all is 0. Errors: corrupt_data if a
  /// number was not finite.
  Result<KvScales> scales() const;

 private:
  float key_ = 0.0F;  // NaN: not all were finite
  float value_ = 0.0F;
};

/// The squared errors of keys and values that fixed scales round to E4M3, and their squared norms.
struct KvError {
  double key_error = 0.0, key_norm = 0.0;
  double value_error = 0.0, value_norm = 0.0;

  /// Takes in a cache of f32.
  void add(const KvLayer& cache, const KvScales& scales);
};

}  // namespace troupe
