#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "models/ops/ops.hpp"

namespace troupe {

/// Rounds rows up to the largest that share an algorithm with `rows`: 1, 2, 4, 8, 16, 24, 32, 48,
/// 64, 96 and so on, so that there are few algorithms to choose whatever the batches.
std::int64_t rows_bucket(std::int64_t rows);

/// The key for choosing an algorithm. Rows are a bucket.
struct GemmKind {
  std::int64_t n = 0, k = 0, rows = 0;
  DType in = DType::bf16, out = DType::bf16;
  int segments = 1;  ///< equal parts of k, each its own GEMM: out [segments, rows, n]
  auto operator<=>(const GemmKind&) const = default;
};

/// cuBLASLt's description of out = x . weight^T. Its matrices are column-major, so it computes
/// out^T [n, rows] = weight [n, k] . x^T.
struct GemmLayout {
  explicit GemmLayout(const GemmKind& kind);

  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t weight{}, x{}, out{};
};

/// Chooses cuBLASLt's algorithms.
class GemmAlgorithms {
 public:
  virtual ~GemmAlgorithms() = default;
  /// Chooses for GEMMs of this kind, with at most `workspace_bytes`; `weight` is one of their
  /// weights, only read. Null if there is none.
  virtual const cublasLtMatmulAlgo_t* choose(const GemmKind& kind, const void* weight,
                                             cudaStream_t stream) = 0;
};

/// Dense GEMMs: bf16 rows of decode batches by launch_skinny_gemm and launch_decode_gemm, others by
/// cuBLASLt. One thread at a time.
class DenseGemm {
 public:
  /// `workspace` is device memory that GEMMs on one stream may use. With `tunes`, the first bf16
  /// GEMM of a kind is autotuned (GemmAutotuner), which may take milliseconds and waits for the
  /// device; otherwise the heuristic's first suggestion is taken. Errors: internal.
  static Result<std::unique_ptr<DenseGemm>> create(DeviceTensor workspace, bool tunes);
  ~DenseGemm();
  DenseGemm(const DenseGemm&) = delete;
  DenseGemm& operator=(const DenseGemm&) = delete;

  /// Enqueues out = x . weight^T: weight [n, k] and x [rows, k] of one dtype, f32 or bf16, out
  /// [rows, n] f32 or bf16; rows >= 1. Errors: internal.
  Result<void> multiply(const Tensor& weight, const Tensor& x, const Tensor& out,
                        cudaStream_t stream);

  /// True if multiply_gated supports them: bf16 rows of a decode batch.
  static bool multiplies_gated(const Tensor& weight, const Tensor& x);
  /// Like multiply for a weight whose first half of n is a gate: out [rows, n / 2] = silu(gate) *
  /// up.
  Result<void> multiply_gated(const Tensor& weight, const Tensor& x, const Tensor& out,
                              cudaStream_t stream);

 private:
  explicit DenseGemm(DeviceTensor workspace);
  cublasStatus_t multiply(const GemmKind& kind, const cublasLtMatmulAlgo_t& algorithm,
                          const Tensor& weight, const Tensor& x, const Tensor& out,
                          cudaStream_t stream);

  cublasLtHandle_t handle_ = nullptr;
  DeviceTensor workspace_;
  std::unique_ptr<GemmAlgorithms> advised_, tuned_;
};

}  // namespace troupe
