#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <cuda_runtime.h>

#include "models/ops/coded_panels.hpp"
#include "models/ops/cuda/gemm/dense_gemm.hpp"
#include "models/ops/cuda/gemm/invariant_gemm.hpp"
#include "models/ops/cuda/gemm/w8a8_gemm.hpp"
#include "models/ops/linear.hpp"

namespace troupe {

/// What matrices in 8-bit codes are multiplied as (Linear::kernel).
constexpr std::string_view rounding_kernel(CodeKind kind) {
  return kind == CodeKind::int8 ? "int8 codes, activations as int8 (W8A8)"
                                : "fp8 codes, activations as fp8 (W8A8)";
}

/// The GEMMs of matrices, by the ways to store them.
struct CudaGemms {
  std::unique_ptr<DenseGemm> dense;          ///< of plain ones, unless deterministic
  std::unique_ptr<InvariantGemm> invariant;  ///< of plain ones, if deterministic
  std::unique_ptr<W8a8Gemm> w8a8;            ///< of those in 8-bit codes, if there may be any
};

/// A weight on a GPU. Each way to store one is a class, which brings its own GEMM.
class CudaLinear : public Linear {
 public:
  /// Enqueues out = x . weight^T, as DenseOps::linear says; x has rows.
  virtual Result<void> multiply(CudaGemms& gemms, const Tensor& x, const Tensor& out,
                                cudaStream_t stream) const = 0;
  /// Like multiply, then silu_mul, as DenseOps::linear_gate_up says; false, and nothing is
  /// enqueued, if no GEMM does both.
  virtual Result<bool> multiply_gated(CudaGemms& gemms, const Tensor& x, const Tensor& out,
                                      cudaStream_t stream) const = 0;
  /// The matrix, [n, k] row-major in the Ops' dtype, for kernels that read it themselves; null if
  /// it is stored otherwise.
  virtual const Tensor* plain() const = 0;
  /// The matrix in 8-bit codes that are multiplied with codes; null if it is stored otherwise.
  virtual const W8a8Matrix* codes() const { return nullptr; }
  /// As WeightOps::widen, which it is called by.
  virtual Result<void> widen(cudaStream_t /*stream*/) {
    return fail(ErrorCode::unsupported, "a matrix [{}, {}] has no other kernel", out_features(),
                in_features());
  }
};

/// A weight in the layout of its file, in the Ops' dtype.
class PlainCudaLinear final : public CudaLinear {
 public:
  /// Deterministic products add the sums of `segments` parts of k. `kernel`: see Linear.
  explicit PlainCudaLinear(DeviceTensor weight, int segments = 1, std::string kernel = {})
      : weight_(std::move(weight)), segments_(segments), kernel_(std::move(kernel)) {}

  std::int64_t out_features() const override { return weight_->shape()[0]; }
  std::int64_t in_features() const override { return weight_->shape()[1]; }
  std::size_t bytes() const override { return weight_->bytes(); }
  std::string kernel() const override {
    return kernel_.empty() ? std::string(to_string(weight_->dtype())) : kernel_;
  }
  Result<void> multiply(CudaGemms& gemms, const Tensor& x, const Tensor& out,
                        cudaStream_t stream) const override {
    if (gemms.invariant) return gemms.invariant->multiply(weight_, segments_, x, out, stream);
    return gemms.dense->multiply(weight_, x, out, stream);
  }
  Result<bool> multiply_gated(CudaGemms& gemms, const Tensor& x, const Tensor& out,
                              cudaStream_t stream) const override {
    if (!gemms.dense || !DenseGemm::multiplies_gated(weight_, x)) return false;
    TROUPE_CHECK(gemms.dense->multiply_gated(weight_, x, out, stream));
    return true;
  }
  const Tensor* plain() const override { return &weight_.view(); }

 private:
  DeviceTensor weight_;
  int segments_;
  std::string kernel_;
};

/// Weights in the layout of their files, [experts, n, k] row-major, 8-bit codes of them with a
/// scale for each row, times rows that become codes, too, or codes in panels, times rows of bf16.
class CudaGroupedLinear final : public GroupedLinear {
 public:
  /// `kernel`: what GroupedLinear says.
  explicit CudaGroupedLinear(DeviceTensor weights, std::string kernel = {})
      : weights_(std::move(weights)), kernel_(std::move(kernel)) {}
  /// `scales` [experts, n] f32. `room` is memory for widen(); null: it is not widened. With it the
  /// codes have memory for rows that are padded to whole units of panels.
  CudaGroupedLinear(DeviceTensor codes, DeviceTensor scales,
                    std::shared_ptr<const DeviceTensor> room)
      : weights_(std::move(codes)),
        scales_(std::move(scales)),
        kernel_(rounding_kernel(CodeKind::e4m3)),
        room_(std::move(room)) {}
  /// `panels` [experts, layout.code_bytes()] u8, of expert_panels(); `row_scales` [experts, n] f32
  /// if the layout has them.
  CudaGroupedLinear(DeviceTensor panels, DeviceTensor row_scales, const CodedPanels& layout)
      : weights_(std::move(panels)),
        scales_(std::move(row_scales)),
        layout_(layout),
        kernel_(describe(layout)) {}

  std::int64_t experts() const override { return weights_->shape()[0]; }
  std::int64_t out_features() const override {
    return layout_ ? layout_->rows : weights_->shape()[1];
  }
  std::int64_t in_features() const override {
    return layout_ ? layout_->columns : weights_->shape()[2];
  }
  std::size_t bytes() const override { return weights_->bytes() + scales_->bytes(); }
  std::string kernel() const override {
    return kernel_.empty() ? std::string(to_string(weights_->dtype())) : kernel_;
  }
  bool rounds_rows() const override { return scales() != nullptr; }
  const Tensor& weights() const { return weights_.view(); }
  /// Of 8-bit codes; null: the weights are others.
  const float* scales() const { return layout_ ? nullptr : scales_or_null(); }
  /// As WeightOps::widen.
  Result<void> widen(cudaStream_t stream);
  /// Of codes in panels; null: the weights are others.
  const CodedPanels* panels() const { return layout_ ? &*layout_ : nullptr; }
  /// Of rows of panels [experts, n]; null: they have none.
  const float* row_scales() const { return layout_ ? scales_or_null() : nullptr; }

 private:
  const float* scales_or_null() const { return scales_->empty() ? nullptr : scales_->as<float>(); }

  DeviceTensor weights_, scales_;
  std::optional<CodedPanels> layout_;
  std::string kernel_;
  std::shared_ptr<const DeviceTensor> room_;
};

}  // namespace troupe
