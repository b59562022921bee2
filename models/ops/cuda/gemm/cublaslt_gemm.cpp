#include "models/ops/cuda/gemm/cublaslt_gemm.hpp"

#include <bit>

namespace troupe {
namespace {

cudaDataType_t cuda_type(DType dtype) {
  if (dtype == DType::u8) return CUDA_R_8F_E4M3;
  return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

template <class T>
void set(cublasLtMatmulDescOpaque_t& operation, cublasLtMatmulDescAttributes_t attribute,
         const T& value) {
  cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof value);
}

}  // namespace

std::int64_t rows_bucket(std::int64_t rows) {
  const auto power = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows)));
  const std::int64_t three_quarters = power / 4 * 3;
  return rows > 16 && rows <= three_quarters ? three_quarters : power;
}

GemmLayout::GemmLayout(const GemmKind& kind) {
  cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  if (kind.in == DType::u8) {
    set(operation, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
    set(operation, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
    // The heuristic looks whether there are scales, not at them.
    static constexpr float some_scale = 1.0F;
    set(operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &some_scale);
    set(operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &some_scale);
  }
  const auto n = static_cast<std::uint64_t>(kind.n),
             k = static_cast<std::uint64_t>(kind.k / kind.segments),
             rows = static_cast<std::uint64_t>(kind.rows);
  cublasLtMatrixLayoutInit(&weight, cuda_type(kind.in), k, n, kind.k);
  cublasLtMatrixLayoutInit(&x, cuda_type(kind.in), k, rows, kind.k);
  cublasLtMatrixLayoutInit(&out, cuda_type(kind.out), n, rows, kind.n);
  if (kind.segments == 1) return;
  const auto repeat = [&](cublasLtMatrixLayoutOpaque_t& layout, std::int64_t offset) {
    const std::int32_t count = kind.segments;
    cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                     sizeof count);
    cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &offset,
                                     sizeof offset);
  };
  repeat(weight, kind.k / kind.segments);
  repeat(x, kind.k / kind.segments);
  repeat(out, kind.rows * kind.n);
}

cublasStatus_t run_cublaslt_gemm(cublasLtHandle_t handle, const GemmKind& kind,
                                 const cublasLtMatmulAlgo_t& algorithm, const GemmMemory& memory,
                                 cudaStream_t stream) {
  GemmLayout layout(kind);
  if (kind.in == DType::u8) {
    set(layout.operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, memory.weight_scales);
    set(layout.operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, memory.x_scales);
  }
  if (memory.out_stride != 0) {
    cublasLtMatrixLayoutSetAttribute(&layout.out, CUBLASLT_MATRIX_LAYOUT_LD, &memory.out_stride,
                                     sizeof memory.out_stride);
  }
  const float one = 1.0F, zero = 0.0F;
  return cublasLtMatmul(handle, &layout.operation, &one, memory.weight, &layout.weight, memory.x,
                        &layout.x, &zero, memory.out, &layout.out, memory.out, &layout.out,
                        &algorithm, memory.workspace, memory.workspace_bytes, stream);
}

}  // namespace troupe
