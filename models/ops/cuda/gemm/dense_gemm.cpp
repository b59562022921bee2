#include "models/ops/cuda/gemm/dense_gemm.hpp"

#include <bit>
#include <utility>

#include "models/ops/cuda/gemm/cublaslt_heuristic.hpp"
#include "models/ops/cuda/gemm/decode_gemm.hpp"
#include "models/ops/cuda/gemm/gemm_autotuner.hpp"
#include "models/ops/cuda/gemm/skinny_gemm.hpp"

namespace troupe {
namespace {

cudaDataType_t cuda_type(DType dtype) { return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

/// Makes the descriptor of one of our kernels, SkinnyGemm or DecodeGemm.
template <class Gemm>
Gemm own_gemm(const Tensor& weight, const Tensor& x, const Tensor& out, bool gated) {
  return {.weight = weight.data(),
          .x = x.data(),
          .out = out.data(),
          .out_dtype = out.dtype(),
          .rows = x[0],
          .n = weight[0],
          .k = weight[1],
          .gated = gated};
}

/// Enqueues the GEMM on the one of our kernels that suits it; false if none does.
Result<bool> launch_own_gemm(const Tensor& weight, const Tensor& x, const Tensor& out, bool gated,
                             cudaStream_t stream) {
  if (x.dtype() != DType::bf16) return false;
  const auto few = own_gemm<SkinnyGemm>(weight, x, out, gated);
  const auto batch = own_gemm<DecodeGemm>(weight, x, out, gated);
  cudaError_t error = cudaSuccess;
  if (skinny_gemm_fits(few)) {
    error = launch_skinny_gemm(few, stream);
  } else if (decode_gemm_suits(batch)) {
    error = launch_decode_gemm(batch, best_tiling(batch), stream);
  } else {
    return false;
  }
  if (error == cudaSuccess) return true;
  return fail(ErrorCode::internal, "the gemm of {} rows with a matrix {} x {} failed: {}", few.rows,
              few.n, few.k, cudaGetErrorString(error));
}

}  // namespace

std::int64_t rows_bucket(std::int64_t rows) {
  const auto power = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows)));
  const std::int64_t three_quarters = power / 4 * 3;
  return rows > 16 && rows <= three_quarters ? three_quarters : power;
}

GemmLayout::GemmLayout(const GemmKind& kind) {
  cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  cublasLtMatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                 sizeof transposed);
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

DenseGemm::DenseGemm(DeviceTensor workspace) : workspace_(std::move(workspace)) {}

Result<std::unique_ptr<DenseGemm>> DenseGemm::create(DeviceTensor workspace, bool tunes) {
  std::unique_ptr<DenseGemm> products(new DenseGemm(std::move(workspace)));
  if (const cublasStatus_t status = cublasLtCreate(&products->handle_);
      status != CUBLAS_STATUS_SUCCESS) {
    return fail(ErrorCode::internal, "cuBLASLt cannot be started: {}",
                cublasLtGetStatusString(status));
  }
  const std::size_t room = products->workspace_->bytes();
  products->advised_ = std::make_unique<CublasltHeuristic>(products->handle_, room);
  if (tunes) {
    products->tuned_ = std::make_unique<GemmAutotuner>(products->handle_, room, tuning_file());
  }
  return products;
}

DenseGemm::~DenseGemm() {
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

cublasStatus_t DenseGemm::multiply(const GemmKind& kind, const cublasLtMatmulAlgo_t& algorithm,
                                   const Tensor& weight, const Tensor& x, const Tensor& out,
                                   cudaStream_t stream) {
  GemmLayout layout(kind);
  const float one = 1.0F, zero = 0.0F;
  return cublasLtMatmul(handle_, &layout.operation, &one, weight.data(), &layout.weight, x.data(),
                        &layout.x, &zero, out.data(), &layout.out, out.data(), &layout.out,
                        &algorithm, workspace_->data(), workspace_->bytes(), stream);
}

Result<void> DenseGemm::multiply(const Tensor& weight, const Tensor& x, const Tensor& out,
                                 cudaStream_t stream) {
  TROUPE_TRY(const bool is_done, launch_own_gemm(weight, x, out, false, stream));
  if (is_done) return {};
  const GemmKind kind{weight[0], weight[1], x[0], x.dtype(), out.dtype()};
  GemmKind bucket = kind;
  bucket.rows = rows_bucket(kind.rows);
  GemmAlgorithms& algorithms = tuned_ != nullptr && x.dtype() == DType::bf16 ? *tuned_ : *advised_;
  cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
  if (const auto* chosen = algorithms.choose(bucket, weight.data(), stream); chosen != nullptr) {
    status = multiply(kind, *chosen, weight, x, out, stream);
  }
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
    // The algorithm for the most rows of a bucket may not support fewer.
    const auto advised = advised_algorithms(handle_, kind, workspace_->bytes(), 1);
    if (!advised.empty()) status = multiply(kind, advised.front(), weight, x, out, stream);
  }
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return fail(ErrorCode::internal, "the gemm of {} {} and {} into {} failed: {}",
              x.shape().to_string(), to_string(x.dtype()), weight.shape().to_string(),
              to_string(out.dtype()), cublasLtGetStatusString(status));
}

bool DenseGemm::multiplies_gated(const Tensor& weight, const Tensor& x) {
  return x.dtype() == DType::bf16 && (skinny_gemm_fits(own_gemm<SkinnyGemm>(weight, x, x, true)) ||
                                      decode_gemm_suits(own_gemm<DecodeGemm>(weight, x, x, true)));
}

Result<void> DenseGemm::multiply_gated(const Tensor& weight, const Tensor& x, const Tensor& out,
                                       cudaStream_t stream) {
  TROUPE_TRY(const bool is_done, launch_own_gemm(weight, x, out, true, stream));
  if (is_done) return {};
  return fail(ErrorCode::internal, "no GEMM with a gate suits {} rows of {}", x[0],
              weight.shape().to_string());
}

}  // namespace troupe
