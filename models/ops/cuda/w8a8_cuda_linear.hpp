#pragma once

#include <memory>
#include <string>
#include <utility>

#include "models/ops/cuda/coded_cuda_linear.hpp"

namespace troupe {

/// A dense weight in 8-bit codes, times rows that become codes, too (W8a8Gemm), until it is
/// widened: then it is a CodedCudaLinear of the same memory.
class W8a8CudaLinear final : public CudaLinear {
 public:
  /// `decoded` is memory for widen(), as CodedCudaLinear has it; null: it is not widened. With it
  /// the codes have memory for rows that are padded to whole units of panels.
  W8a8CudaLinear(W8a8Matrix weight, std::shared_ptr<const DeviceTensor> decoded)
      : weight_(std::move(weight)),
        n_(weight_.codes->shape()[0]),
        k_(weight_.codes->shape()[1]),
        decoded_(std::move(decoded)) {}

  std::int64_t out_features() const override { return n_; }
  std::int64_t in_features() const override { return k_; }
  std::size_t bytes() const override {
    if (widened_ != nullptr) return widened_->bytes();
    return weight_.codes->bytes() + weight_.scales->bytes();
  }
  std::string kernel() const override {
    return widened_ != nullptr ? widened_->kernel() : std::string(rounding_kernel(weight_.kind));
  }
  bool rounds_rows() const override { return widened_ == nullptr; }
  Result<void> multiply(CudaGemms& gemms, const Tensor& x, const Tensor& out,
                        cudaStream_t stream) const override {
    if (widened_ != nullptr) return widened_->multiply(gemms, x, out, stream);
    return gemms.w8a8->multiply(weight_, x, out, stream);
  }
  Result<bool> multiply_gated(CudaGemms& gemms, const Tensor& x, const Tensor& out,
                              cudaStream_t stream) const override {
    if (widened_ != nullptr) return widened_->multiply_gated(gemms, x, out, stream);
    return gemms.w8a8->multiply_gated(weight_, x, out, stream);
  }
  const Tensor* plain() const override { return nullptr; }
  const W8a8Matrix* codes() const override { return widened_ != nullptr ? nullptr : &weight_; }
  Result<void> widen(cudaStream_t stream) override;

 private:
  W8a8Matrix weight_;  // empty once it is widened
  std::int64_t n_, k_;
  std::shared_ptr<const DeviceTensor> decoded_;
  std::unique_ptr<CodedCudaLinear> widened_;
};

}  // namespace troupe
