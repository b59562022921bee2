#pragma once

#include "models/layers/feed_forward.hpp"
#include "models/layers/layer_context.hpp"

namespace troupe {

/// The parameters of a layer that make up an MLP.
struct MlpParameters {
  Parameter gate = Parameter::gate;
  Parameter up = Parameter::up;
  Parameter down = Parameter::down;
  bool with_biases = false;  ///< Parameter::gate_bias, up_bias and down_bias
};

/// down(activation(gate(x), up(x))), or down(activation(up(x))) if the config's activation is not
/// gated: gate and up column-parallel as one GEMM, down row-parallel in S segments, over the tensor
/// ranks or the ranks of a DenseGroup. Each GEMM may have a bias.
class DenseMlp final : public FeedForward {
 public:
  static Result<std::unique_ptr<FeedForward>> create(const LayerContext& context,
                                                     std::int64_t layer,
                                                     const MlpParameters& parameters = {});
  bool reads_all_tokens() const override { return true; }
  Result<PendingSum> forward(const Tensor& x, const Tensor& out) const override;
  const Linear* only_reader(std::int64_t tokens) const override;
  SharedMlp shared_mlp() const override;
  std::size_t bytes() const override;

 private:
  explicit DenseMlp(const LayerContext& context)
      : ops_(context.ops),
        group_(context.tensor),
        dense_(context.dense),
        space_(context.space),
        activation_(context.config.activation) {}
  /// sums [rows, hidden] = this rank's part of the output for x [rows, hidden].
  void compute(const Tensor& x, const Tensor& sums) const;
  /// activated = the input of down, with `gate_up` as scratch.
  void project(const Tensor& x, const Tensor& gate_up, const Tensor& activated) const;

  Ops& ops_;
  TensorGroup& group_;
  DenseGroup* dense_;  // or null
  Workspace& space_;
  Activation activation_;
  std::unique_ptr<Linear> gate_up_;  // [2 inner, hidden], without gate [inner, hidden]
  std::unique_ptr<Linear> down_;     // [hidden, inner]
  DeviceTensor gate_up_bias_;        // as many f32, or empty
  DeviceTensor down_bias_;           // [hidden] f32, or empty
};

}  // namespace troupe
