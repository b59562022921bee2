// The layers of a job that finds the scales of a KV cache.
#include <array>
#include <cmath>
#include <cstring>

#include "launcher/quantize/quantize_job.hpp"
#include "models/quantize/kv_scales.hpp"

namespace troupe {
namespace {

nlohmann::json scale_figures(const std::string& name, std::int64_t tokens, float scale,
                             const RelativeError& error) {
  return {{"name", name},
          {"method", to_string(QuantizationMethod::rtn)},
          {"inputs", tokens},
          {"scale", scale},
          {"relative_error", error.value()}};
}

}  // namespace

std::vector<TensorSpec> QuantizeJob::added_specs(std::int64_t shard) const {
  if (!is_about_kv(options_.quantization.scheme) || shard == 0) return {};
  const KvScaleNames names = kv_scale_names(config_, shard - 1);
  return {{names.key, "F32", {1}, sizeof(float)}, {names.value, "F32", {1}, sizeof(float)}};
}

Result<nlohmann::json> QuantizeJob::calibrate_kv(std::int64_t layer) {
  KvRange range;
  TROUPE_CHECK(run_layer(config_, *checkpoint_, *ops_, layer, text_, hidden_, after_,
                         [&](const KvLayer& cache) { range.add(cache); }));
  auto scales = range.scales();
  if (!scales.ok()) {
    return fail(scales.error().code, "layer {}: {}", layer, scales.error().message);
  }
  // The second time with the scales; its output is that of the first.
  KvError error;
  TROUPE_CHECK(run_layer(config_, *checkpoint_, *ops_, layer, text_, hidden_, hidden_,
                         [&](const KvLayer& cache) { error.add(cache, *scales); }));
  const std::array<float, 2> added = {scales->key, scales->value};
  TROUPE_CHECK(write_shard(
      layer + 1, [](const std::string&, ShardWriter&) { return false; },
      std::as_bytes(std::span(added))));
  if (layer + 1 < config_.layers) TROUPE_CHECK(output_->save_hidden(layer + 1, hidden_));
  const KvScaleNames names = kv_scale_names(config_, layer);
  const std::int64_t tokens = std::ssize(text_.tokens);
  const RelativeError keys{error.key_error, error.key_norm},
      values{error.value_error, error.value_norm};
  const RelativeError both{keys.error + values.error, keys.whole + values.whole};
  return nlohmann::json{
      {"divergence", both.value()},
      {"matrices",
       nlohmann::json::array({scale_figures(names.key, tokens, scales->key, keys),
                              scale_figures(names.value, tokens, scales->value, values)})}};
}

}  // namespace troupe
