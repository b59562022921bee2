#pragma once

#include <memory>
#include <string>
#include <utility>

#include "models/ops/cuda/cuda_linear.hpp"
#include "models/ops/cuda/gemm/coded_gemm.hpp"

namespace troupe {

/// A matrix of codes in panels (coded_panels.hpp).
struct CodedMatrix {
  CodedPanels layout = {};
  DeviceTensor panels{};      ///< [code_bytes()] u8
  DeviceTensor row_scales{};  ///< [n] f32, if the layout has them
};

/// A weight of 4-bit or 8-bit codes that multiplies rows in bf16. Up to 384 rows are multiplied
/// with the codes, for more a part of the matrix at a time becomes bf16.
class CodedCudaLinear final : public CudaLinear {
 public:
  /// `decoded` is [elements] bf16, at least 128 rows of k, which all GEMMs of a stream share.
  CodedCudaLinear(CodedMatrix weight, std::shared_ptr<const DeviceTensor> decoded)
      : weight_(std::move(weight)), decoded_(std::move(decoded)) {}

  std::int64_t out_features() const override { return weight_.layout.rows; }
  std::int64_t in_features() const override { return weight_.layout.columns; }
  std::size_t bytes() const override {
    const CodedPanels& layout = weight_.layout;
    return static_cast<std::size_t>(layout.code_bytes() + layout.scale_bytes());
  }
  std::string kernel() const override {
    const char* const widths = is_packed(weight_.layout.kind) ? "W4A16" : "W8A16";
    return describe(weight_.layout) + ", activations as bf16 (" + widths + ")";
  }
  Result<void> multiply(CudaGemms& gemms, const Tensor& x, const Tensor& out,
                        cudaStream_t stream) const override;
  Result<bool> multiply_gated(CudaGemms& gemms, const Tensor& x, const Tensor& out,
                              cudaStream_t stream) const override;
  const Tensor* plain() const override { return nullptr; }

 private:
  CodedGemm descriptor(const Tensor& x, const Tensor& out, bool gated) const;
  CodedWeight weight() const;

  CodedMatrix weight_;
  std::shared_ptr<const DeviceTensor> decoded_;
};

}  // namespace troupe
