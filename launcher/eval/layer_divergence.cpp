#include "launcher/eval/layer_divergence.hpp"

#include <cmath>
#include <memory>
#include <utility>

#include "models/families/family.hpp"
#include "models/ops/cpu/cpu_ops.hpp"

namespace troupe {
namespace {

/// A model that a text passes layer by layer.
class LayerRunner {
 public:
  static Result<LayerRunner> open(const std::string& folder, const CalibrationText& text,
                                  int threads) {
    TROUPE_TRY(ModelConfig config, load_model_config(folder));
    TROUPE_TRY(Checkpoint checkpoint, Checkpoint::open(folder));
    TROUPE_TRY(auto ops, make_cpu_ops({.threads = threads,
                                       .dtype = DType::f32,
                                       .isa = CpuIsa::best,
                                       .cores_are_shared = true}));
    return LayerRunner(std::move(config), std::move(checkpoint), std::move(ops), text);
  }

  const ModelConfig& config() const { return config_; }
  /// [tokens, hidden] f32: after the layers that were run.
  const Tensor& hidden() const { return hidden_; }
  Result<void> run(std::int64_t layer) {
    return run_layer(config_, checkpoint_, *ops_, layer, text_, hidden_, hidden_);
  }

 private:
  LayerRunner(ModelConfig config, Checkpoint checkpoint, std::unique_ptr<Ops> ops,
              const CalibrationText& text)
      : config_(std::move(config)),
        checkpoint_(std::move(checkpoint)),
        ops_(std::move(ops)),
        text_(text),
        hidden_(DType::f32, {std::ssize(text.tokens), config_.hidden_size}) {}

  ModelConfig config_;
  Checkpoint checkpoint_;
  std::unique_ptr<Ops> ops_;
  const CalibrationText& text_;
  HostTensor hidden_;
};

/// ||b - a|| / ||a||.
double distance(const Tensor& a, const Tensor& b) {
  double error = 0.0, whole = 0.0;
  for (std::int64_t i = 0; i < a.elements(); ++i) {
    const auto one = static_cast<double>(a.as<float>()[i]);
    const double difference = static_cast<double>(b.as<float>()[i]) - one;
    error += difference * difference;
    whole += one * one;
  }
  return whole > 0.0 ? std::sqrt(error / whole) : 0.0;
}

}  // namespace

Result<std::vector<double>> layer_divergences(
    const std::string& first, const std::string& second, const CalibrationText& text, int threads,
    const std::function<bool(std::int64_t done, std::int64_t layers)>& goes_on) {
  TROUPE_TRY(LayerRunner a, LayerRunner::open(first, text, threads));
  TROUPE_TRY(LayerRunner b, LayerRunner::open(second, text, threads));
  const std::int64_t layers = a.config().layers;
  if (b.config().layers != layers || b.config().hidden_size != a.config().hidden_size) {
    return fail(
        ErrorCode::invalid_argument,
        "--layers compares models of the same layers: {} has {} of {} channels, {} has {} of "
        "{}",
        first, layers, a.config().hidden_size, second, b.config().layers, b.config().hidden_size);
  }
  std::vector<double> distances;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    if (!goes_on(layer, layers)) return fail(ErrorCode::cancelled, "stopped by a signal");
    TROUPE_CHECK(a.run(layer));
    TROUPE_CHECK(b.run(layer));
    distances.push_back(distance(a.hidden(), b.hidden()));
  }
  return distances;
}

}  // namespace troupe
