#include "models/ops/cuda/gemm/dense_gemm.hpp"

#include <utility>

#include "models/ops/cuda/gemm/cublaslt_heuristic.hpp"
#include "models/ops/cuda/gemm/decode_gemm.hpp"
#include "models/ops/cuda/gemm/gemm_autotuner.hpp"
#include "models/ops/cuda/gemm/skinny_gemm.hpp"

namespace troupe {
namespace {

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
    products->tuned_ =
        std::make_unique<GemmAutotuner>(products->handle_, room, TuningFile::of_user("gemms"));
  }
  return products;
}

DenseGemm::~DenseGemm() {
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

Result<void> DenseGemm::multiply(const GemmKind& kind, GemmMemory memory, cudaStream_t stream) {
  memory.workspace = workspace_->data();
  memory.workspace_bytes = workspace_->bytes();
  GemmKind bucket = kind;
  bucket.rows = rows_bucket(kind.rows);
  GemmAlgorithms& algorithms = tuned_ != nullptr && kind.in != DType::f32 ? *tuned_ : *advised_;
  cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
  if (const auto* chosen = algorithms.choose(bucket, memory.weight, stream); chosen != nullptr) {
    status = run_cublaslt_gemm(handle_, kind, *chosen, memory, stream);
  }
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
    // The algorithm for the most rows of a bucket may not support fewer.
    const auto advised = advised_algorithms(handle_, kind, memory.workspace_bytes, 1);
    if (!advised.empty()) {
      status = run_cublaslt_gemm(handle_, kind, advised.front(), memory, stream);
    }
  }
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return fail(ErrorCode::internal, "the gemm of {} rows of {} {} with a matrix {} x {} failed: {}",
              kind.rows, kind.k, kind.in == DType::u8 ? "codes" : to_string(kind.in), kind.n,
              kind.k, cublasLtGetStatusString(status));
}

Result<void> DenseGemm::multiply(const Tensor& weight, const Tensor& x, const Tensor& out,
                                 cudaStream_t stream) {
  TROUPE_TRY(const bool is_done, launch_own_gemm(weight, x, out, false, stream));
  if (is_done) return {};
  return multiply({weight[0], weight[1], x[0], x.dtype(), out.dtype()},
                  {.weight = weight.data(), .x = x.data(), .out = out.data()}, stream);
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
