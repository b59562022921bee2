#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "models/layers/layer_peak.hpp"
#include "runtime/actor/methods.hpp"

namespace troupe {

/// The actor that workers tell of layers whose activations have become too large for 8 bits: the
/// executor of their steps. Calls go beside the step plane and hold up no step.
class PeakSink {
 public:
  virtual ~PeakSink() = default;

  /// `rank` has seen these. Layers that are known may come again, from this rank or another.
  virtual void note_peaks(std::int32_t rank, std::vector<LayerPeak> peaks) = 0;

  using Methods = troupe::Methods<&PeakSink::note_peaks>;
  static constexpr std::string_view actor_type = "PeakSink";
};

}  // namespace troupe
