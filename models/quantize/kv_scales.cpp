#include "models/quantize/kv_scales.hpp"

#include <cmath>

#include "models/families/family.hpp"
#include "models/layers/weights/parameters.hpp"
#include "models/ops/fp8_rows.hpp"
#include "models/ops/weight_format.hpp"

namespace troupe {
namespace {

float scale_of(float largest) { return largest > 0.0F ? largest / e4m3_max : 1.0F; }

void add_error(const Tensor& cache, float scale, double& error, double& norm) {
  for (const float number : cache.span<float>()) {
    const float rounded = e4m3_to_float(float_to_e4m3(number / scale)) * scale;
    error += std::pow(static_cast<double>(rounded) - number, 2);
    norm += std::pow(static_cast<double>(number), 2);
  }
}

}  // namespace

KvScaleNames kv_scale_names(const ModelConfig& config, std::int64_t layer) {
  const std::string module = attention_module(weight_rules_of(config), layer);
  return {module + ".k_scale", module + ".v_scale"};
}

Result<void> check_kv_scales(const ModelConfig& config, const Checkpoint& checkpoint) {
  const std::string folder = checkpoint.folder().string();
  if (config.latent) {
    return fail(ErrorCode::unsupported,
                "{}: latent attention has no fixed scales of keys and values; kv_cache.dtype "
                "fp8_e4m3 finds those of each token by itself",
                folder);
  }
  const std::string& method = checkpoint.quantization().method;
  if (method.empty() || method == "compressed-tensors") return {};
  return fail(
      ErrorCode::unsupported,
      "{} is in the format of {}, which has no place for scales of the KV cache: start from "
      "one in bf16, f16 or f32, or in a format of compressed-tensors",
      folder, method);
}

void KvRange::add(const KvLayer& cache) {
  const auto widen = [](float& largest, const Tensor& numbers) {
    const float found = largest_magnitude(numbers.span<float>());
    if (!(found <= largest)) largest = found;
  };
  widen(key_, cache.keys);
  widen(value_, cache.values);
}

Result<KvScales> KvRange::scales() const {
  if (std::isfinite(key_) && std::isfinite(value_)) {
    return KvScales{scale_of(key_), scale_of(value_)};
  }
  return fail(ErrorCode::corrupt_data, "keys or values are not finite");
}

void KvError::add(const KvLayer& cache, const KvScales& scales) {
  add_error(cache.keys, scales.key, key_error, key_norm);
  add_error(cache.values, scales.value, value_error, value_norm);
}

}  // namespace troupe
