#include "actors/executor/widened_layers.hpp"

#include <utility>

namespace troupe {
namespace {

/// Not named in a plan yet.
constexpr std::uint64_t no_step = ~std::uint64_t{0};

}  // namespace

void WidenedLayers::take(std::int32_t rank, std::span<const LayerPeak> peaks) {
  for (const LayerPeak& peak : peaks) {
    const WidenedLayer widened{peak.layer, peak.largest, rank, no_step};
    if (layers_.try_emplace(peak.layer, widened).second) due_.push_back(peak.layer);
  }
}

std::vector<std::int32_t> WidenedLayers::take_due(std::uint64_t step) {
  for (const std::int32_t layer : due_) {
    WidenedLayer& widened = layers_.at(layer);
    if (widened.step != no_step) continue;
    widened.step = step;
    new_.push_back(widened);
  }
  return std::exchange(due_, {});
}

std::vector<WidenedLayer> WidenedLayers::take_new() { return std::exchange(new_, {}); }

void WidenedLayers::restart() {
  due_.clear();
  for (const auto& [layer, widened] : layers_) due_.push_back(layer);
}

}  // namespace troupe
