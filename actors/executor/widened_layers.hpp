#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "actors/api/widened_layer.hpp"
#include "models/layers/layer_peak.hpp"

namespace troupe {

/// Decides from which step on a step domain's layers fall back to activations of full width: the
/// next that is planned after a rank has told of a peak. The plans of that step tell all ranks, so
/// that they agree whoever has told what when. A layer never goes back. One thread at a time.
class WidenedLayers {
 public:
  /// A rank has told of these. Known layers change nothing.
  void take(std::int32_t rank, std::span<const LayerPeak> peaks);

  /// The layers that the plans of `step`, the next one, have to name; often none. Call once a step.
  std::vector<std::int32_t> take_due(std::uint64_t step);

  /// The layers that take_due() has named for the first time since the last call.
  std::vector<WidenedLayer> take_new();

  /// Steps begin anew, with workers some of which may know nothing: all layers are due again.
  void restart();

 private:
  std::map<std::int32_t, WidenedLayer> layers_;
  std::vector<std::int32_t> due_;
  std::vector<WidenedLayer> new_;
};

}  // namespace troupe
