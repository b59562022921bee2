#pragma once

#include <memory>

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "models/ops/cuda/gemm/cublaslt_gemm.hpp"
#include "models/ops/ops.hpp"

namespace troupe {

/// Dense GEMMs: bf16 rows of decode batches by launch_skinny_gemm and launch_decode_gemm, others by
/// cuBLASLt. One thread at a time.
class DenseGemm {
 public:
  /// `workspace` is device memory that GEMMs on one stream may use. With `tunes`, the first GEMM
  /// of a kind, but for f32, is autotuned (GemmAutotuner), which may take milliseconds and waits
  /// for the device; otherwise the heuristic's first suggestion is taken. Errors: internal.
  static Result<std::unique_ptr<DenseGemm>> create(DeviceTensor workspace, bool tunes);
  ~DenseGemm();
  DenseGemm(const DenseGemm&) = delete;
  DenseGemm& operator=(const DenseGemm&) = delete;

  /// Enqueues out = x . weight^T: weight [n, k] and x [rows, k] of one dtype, f32 or bf16, out
  /// [rows, n] f32 or bf16; rows >= 1. Errors: internal.
  Result<void> multiply(const Tensor& weight, const Tensor& x, const Tensor& out,
                        cudaStream_t stream);

  /// Enqueues a GEMM by cuBLASLt, whatever its kind; `memory` needs no workspace. Errors: internal.
  Result<void> multiply(const GemmKind& kind, GemmMemory memory, cudaStream_t stream);

  /// True if multiply_gated supports them: bf16 rows of a decode batch.
  static bool multiplies_gated(const Tensor& weight, const Tensor& x);
  /// Like multiply for a weight whose first half of n is a gate: out [rows, n / 2] = silu(gate) *
  /// up.
  Result<void> multiply_gated(const Tensor& weight, const Tensor& x, const Tensor& out,
                              cudaStream_t stream);

 private:
  explicit DenseGemm(DeviceTensor workspace);

  cublasLtHandle_t handle_ = nullptr;
  DeviceTensor workspace_;
  std::unique_ptr<GemmAlgorithms> advised_, tuned_;
};

}  // namespace troupe
