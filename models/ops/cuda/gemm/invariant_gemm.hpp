#pragma once

#include <cstdint>
#include <memory>

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "models/ops/cuda/gemm/invariant_autotuner.hpp"
#include "models/ops/ops.hpp"

namespace troupe {

/// Batch-invariant dense bf16 GEMMs: a row has the same bits whatever the number of rows, and
/// segments of k are added in one order. By launch_invariant_gemm, or by cuBLASLt algorithms found
/// to give its bits. One thread at a time.
class InvariantGemm {
 public:
  /// Device memory that GEMMs on one stream may use.
  struct Memory {
    DeviceTensor workspace;
    DeviceTensor parts;  ///< for segments' sums
  };
  /// With `tunes`, kinds of GEMMs are autotuned on first use, see DenseGemm; otherwise
  /// launch_invariant_gemm runs them all. Errors: internal.
  static Result<std::unique_ptr<InvariantGemm>> create(Memory memory, bool tunes);
  ~InvariantGemm();
  InvariantGemm(const InvariantGemm&) = delete;
  InvariantGemm& operator=(const InvariantGemm&) = delete;

  /// Enqueues out = x . weight^T in `segments` of k, at most max_invariant_segments: weight [n, k]
  /// and x [rows, k] bf16, out [rows, n] f32 or bf16; rows >= 1. Errors: internal.
  Result<void> multiply(const Tensor& weight, int segments, const Tensor& x, const Tensor& out,
                        cudaStream_t stream);

 private:
  explicit InvariantGemm(Memory memory) : memory_(std::move(memory)) {}
  /// False if the algorithm does not support it.
  bool multiply(const GemmKind& kind, const cublasLtMatmulAlgo_t& algorithm, const Tensor& weight,
                const Tensor& x, const Tensor& out, cudaStream_t stream);
  std::int64_t max_rows(std::int64_t n, int segments) const;

  Memory memory_;
  cublasLtHandle_t handle_ = nullptr;
  std::unique_ptr<InvariantAutotuner> tuned_;
};

}  // namespace troupe
