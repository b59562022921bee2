#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/bench/ops/op_figures.hpp"
#include "launcher/bench/ops/op_timer.hpp"
#include "launcher/cli/ops_bench_options.hpp"
#include "models/config/model_config.hpp"
#include "models/ops/ops.hpp"

namespace troupe {

struct ModelOpsOptions {
  std::int64_t tensor_ranks = 1;
  std::int32_t block_size = 16;
  DType dtype = DType::f32;                         ///< of weights
  DType kv_dtype = DType::f32;                      ///< of the KV cache
  KvResiduals kv_residuals = {};                    ///< of a KV cache of i4x2
  WeightEncoding encoding = WeightEncoding::plain;  ///< of the layers' matrices
  std::optional<bool> quantize_head = {};           ///< see ModelLimits
  bool on_gpu = false;
  bool deterministic = false;  ///< see EngineSpec: row-parallel matrices are computed in segments
  int threads = 1;             ///< on a CPU
  double seconds = 0.05;
};

/// The operations of one worker of a model, on random numbers in the shapes of a pass.
class ModelOps {
 public:
  ModelOps(Ops& ops, const ModelConfig& model, const ModelOpsOptions& options);

  /// Fills in the ceilings, and the operations for each of `figures.rows`. Errors: those of Ops.
  Result<void> measure(OpsFigures& figures);
  /// The ceilings and attention of any shapes.
  Result<void> measure(OpsFigures& figures, std::span<const BenchedAttention> attention);

 private:
  /// A matrix of the model, with the number of its GEMMs in a pass.
  struct Matrix {
    std::string op;
    std::int64_t n = 0, k = 0, count = 0;
    DType out = DType::f32;
    int segments = 1;  ///< along k
  };

  /// Those of a dense layer.
  struct LayerMatrices {
    std::unique_ptr<Linear> qkv, out, gate_up, down;
  };

  Result<void> measure_ceilings(Ceilings& ceilings);
  Result<void> measure_row_ops(OpsFigures& figures);
  Result<void> measure_matrix(OpsFigures& figures, const Matrix& matrix);
  Result<void> measure_attention(OpsFigures& figures);
  /// A pass's attention and, of the model's own, what writes its cache.
  Result<void> measure_attention(OpsFigures& figures, const AttentionShape& shape,
                                 std::int64_t layers, std::int64_t rows, bool is_own);
  /// Measures the per-head operations of latent attention.
  Result<void> measure_latent_heads(OpsFigures& figures);
  /// Measures whole layers of decode steps, unless the model has experts or latent attention.
  Result<void> measure_layers(OpsFigures& figures);
  Result<double> measure_layer(const OpsFigures& figures, std::int64_t rows,
                               std::span<const LayerMatrices> matrices);
  Result<void> measure_routing(OpsFigures& figures);
  Result<void> measure_experts(OpsFigures& figures);

  /// The MLP that all tokens take beside their experts.
  struct SharedMatrices {
    std::unique_ptr<Linear> gate_up, down;
    DeviceTensor activated;

    SharedMlp mlp() const { return {gate_up.get(), down.get()}; }
  };
  Result<SharedMatrices> shared_matrices();

  std::vector<Matrix> matrices() const;
  std::int64_t sparse_layers() const;
  /// Random numbers in [-1, 1) times `scale`.
  Result<DeviceTensor> random(DType dtype, const Shape& shape);
  HostTensor random_weight(const Shape& shape) const;
  double bytes_of(const Shape& shape, DType dtype) const {
    return static_cast<double>(shape.elements()) * static_cast<double>(size_of(dtype));
  }
  /// Returns how many operands of `bytes` are used in turn.
  std::size_t turns(double bytes) const;
  Result<void> add(OpsFigures& figures, OpFigure figure,
                   const std::function<void(std::size_t turn)>& enqueue, bool capturable = true);

  Ops& ops_;
  const ModelConfig& model_;
  ModelOpsOptions options_;
  OpTimer timer_;
  DType activation_;
  DType summed_;                   ///< dtype of what blocks add to the residual stream, as in
                                   ///< Workspace
  std::int64_t heads_, kv_heads_;  // of one rank
};

}  // namespace troupe
