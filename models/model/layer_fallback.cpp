#include "models/model/layer_fallback.hpp"

#include <atomic>
#include <utility>

namespace troupe {

Result<LayerFallback> LayerFallback::create(Ops& ops, RoundingMatrices matrices, Slice layers,
                                            float max_activation) {
  LayerFallback made(ops, std::move(matrices), layers, max_activation);
  const Shape shape{layers.count};
  TROUPE_TRY(made.peaks_, ops.memory().allocate(DType::f32, shape));
  TROUPE_TRY(made.host_, ops.memory().allocate_host(DType::f32, shape));
  TROUPE_TRY(made.zeros_, ops.memory().allocate_host(DType::f32, shape));
  return made;
}

void LayerFallback::begin_layer(std::int64_t layer) {
  const std::int64_t at = layer - first_;
  const bool is_watched = rounds_rows(layer) && !layers_[static_cast<std::size_t>(at)].is_widened;
  ops_->dense().watch_rows(is_watched ? peaks_->rows(at, 1) : Tensor());
}

std::vector<LayerPeak> LayerFallback::take_peaks() {
  std::vector<LayerPeak> exceeded;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    if (layer.is_told) continue;
    if (!layer.is_widened) {
      // The device may be writing it: then it is the number before or after.
      layer.largest = std::atomic_ref<float>(host_->as<float>()[i]).load(std::memory_order_relaxed);
    }
    if (!(layer.largest > max_activation_)) continue;
    layer.is_told = true;
    exceeded.push_back(
        {static_cast<std::int32_t>(first_) + static_cast<std::int32_t>(i), layer.largest});
  }
  return exceeded;
}

Result<bool> LayerFallback::widen(std::span<const std::int32_t> layers) {
  bool any = false;
  for (const std::int32_t number : layers) {
    const std::int64_t at = number - first_;
    if (at < 0 || at >= std::ssize(layers_)) continue;
    Layer& layer = layers_[static_cast<std::size_t>(at)];
    if (std::exchange(layer.is_widened, true)) continue;
    any = true;
    if (const auto found = matrices_.linear.find(number); found != matrices_.linear.end()) {
      for (Linear* matrix : found->second) TROUPE_CHECK(ops_->weights().widen(*matrix));
    }
    if (const auto found = matrices_.experts.find(number); found != matrices_.experts.end()) {
      for (GroupedLinear* matrices : found->second) {
        TROUPE_CHECK(ops_->weights().widen(*matrices));
      }
    }
  }
  return any;
}

void LayerFallback::restart() {
  for (Layer& layer : layers_) layer.is_told = false;
  ops_->memory().upload(zeros_, peaks_);
  end_pass();
  // take_peaks() does not wait. An error stays with the Ops.
  (void)ops_->stream().synchronize();
}

}  // namespace troupe
