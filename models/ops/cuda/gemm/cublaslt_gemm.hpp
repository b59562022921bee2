#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "parallel/device/dtype.hpp"

namespace troupe {

/// Rounds rows up to the largest that share an algorithm with `rows`: 1, 2, 4, 8, 16, 24, 32, 48,
/// 64, 96 and so on, so that there are few algorithms to choose whatever the batches.
std::int64_t rows_bucket(std::int64_t rows);

/// The key for choosing an algorithm. Rows are a bucket.
struct GemmKind {
  std::int64_t n = 0, k = 0, rows = 0;
  /// f32, bf16, or u8: E4M3 codes, each row of the weight and of x with a scale.
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

/// The memory of a GEMM by cuBLASLt: addresses on the device.
struct GemmMemory {
  const void* weight;
  const void* x;
  void* out;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  const float* weight_scales = nullptr;  ///< of codes: [n]
  const float* x_scales = nullptr;       ///< of codes: [rows]
  std::int64_t out_stride = 0;           ///< of rows of out; 0: n. Only without segments
};

/// Enqueues a GEMM of as many rows as `kind` says.
cublasStatus_t run_cublaslt_gemm(cublasLtHandle_t handle, const GemmKind& kind,
                                 const cublasLtMatmulAlgo_t& algorithm, const GemmMemory& memory,
                                 cudaStream_t stream);

/// Chooses cuBLASLt's algorithms.
class GemmAlgorithms {
 public:
  virtual ~GemmAlgorithms() = default;
  /// Chooses for GEMMs of this kind, with at most `workspace_bytes`; `weight` is one of their
  /// weights, only read. Null if there is none.
  virtual const cublasLtMatmulAlgo_t* choose(const GemmKind& kind, const void* weight,
                                             cudaStream_t stream) = 0;
};

}  // namespace troupe
