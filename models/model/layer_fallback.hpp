#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/layers/layer_peak.hpp"
#include "models/layers/weights/rounding_matrices.hpp"
#include "models/ops/ops.hpp"
#include "parallel/sharding/sharding.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Watches the activations that a rank's layers round to 8 bits, and has layers compute without
/// that when they are told to.
///
/// The device keeps a number for each layer, the largest magnitude of the rows that were rounded in
/// it, which kernels that round rows raise. After each pass the numbers are copied to host memory,
/// in the order of the stream: whoever has a pass's sampled tokens has its peaks. As numbers only
/// grow, the host reads them without waiting, whatever is being copied.
///
/// The decision to widen a layer is not made here: it comes with a step's plan, so that all ranks
/// widen the same layers between the same passes. One thread at a time.
class LayerFallback {
 public:
  /// Of layers [layers.begin, layers.end()) of a model. `ops` and the matrices outlive it. Errors:
  /// those of allocate.
  static Result<LayerFallback> create(Ops& ops, RoundingMatrices matrices, Slice layers,
                                      float max_activation);

  /// What is enqueued from now on belongs to this layer, until another one or end_layers().
  void begin_layer(std::int64_t layer);
  void end_layers() { ops_->dense().watch_rows({}); }
  /// Enqueues the copy to host memory.
  void end_pass() { ops_->memory().download(peaks_, host_); }

  /// As Model::take_peaks.
  std::vector<LayerPeak> take_peaks();
  /// Widens the matrices of those that are here and were not widened before; returns if there were
  /// any. Enqueues.
  Result<bool> widen(std::span<const std::int32_t> layers);
  /// As Model::restart_peaks.
  void restart();

 private:
  struct Layer {
    bool is_told = false;
    bool is_widened = false;
    float largest = 0.0F;  ///< as it was told
  };

  LayerFallback(Ops& ops, RoundingMatrices matrices, Slice layers, float max_activation)
      : ops_(&ops),
        matrices_(std::move(matrices)),
        first_(layers.begin),
        max_activation_(max_activation),
        layers_(static_cast<std::size_t>(layers.count)) {}
  bool rounds_rows(std::int64_t layer) const {
    return matrices_.linear.contains(layer) || matrices_.experts.contains(layer);
  }

  Ops* ops_;
  RoundingMatrices matrices_;
  std::int64_t first_;
  float max_activation_;
  std::vector<Layer> layers_;
  DeviceTensor peaks_;  // [layers] f32
  DeviceTensor host_;   // the same in host memory
  DeviceTensor zeros_;  // likewise
};

}  // namespace troupe
