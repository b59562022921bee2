#include "models/ops/cuda/gemm/invariant_gemm.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "models/ops/cuda/gemm/invariant_gemm_kernel.hpp"

namespace troupe {

Result<std::unique_ptr<InvariantGemm>> InvariantGemm::create(Memory memory, bool tunes) {
  std::unique_ptr<InvariantGemm> dense(new InvariantGemm(std::move(memory)));
  if (!tunes) return dense;
  if (const cublasStatus_t status = cublasLtCreate(&dense->handle_);
      status != CUBLAS_STATUS_SUCCESS) {
    return fail(ErrorCode::internal, "cuBLASLt cannot be started: {}",
                cublasLtGetStatusString(status));
  }
  dense->tuned_ = std::make_unique<InvariantAutotuner>(
      dense->handle_, dense->memory_.workspace->bytes(), TuningFile::of_user("invariant-gemms"));
  return dense;
}

InvariantGemm::~InvariantGemm() {
  tuned_.reset();
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

std::int64_t InvariantGemm::max_rows(std::int64_t n, int segments) const {
  if (segments == 1) return std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t whole_tiles = 128;
  const std::int64_t rows = memory_.parts->elements() / (segments * n);
  return std::max<std::int64_t>(rows / whole_tiles * whole_tiles, 0);
}

bool InvariantGemm::multiply(const GemmKind& kind, const cublasLtMatmulAlgo_t& algorithm,
                             const Tensor& weight, const Tensor& x, const Tensor& out,
                             cudaStream_t stream) {
  void* const sums = kind.segments > 1 ? memory_.parts->data() : out.data();
  return run_cublaslt_gemm(handle_, segments_of(kind), algorithm,
                           {.weight = weight.data(),
                            .x = x.data(),
                            .out = sums,
                            .workspace = memory_.workspace->data(),
                            .workspace_bytes = memory_.workspace->bytes()},
                           stream) == CUBLAS_STATUS_SUCCESS;
}

Result<void> InvariantGemm::multiply(const Tensor& weight, int segments, const Tensor& x,
                                     const Tensor& out, cudaStream_t stream) {
  const std::int64_t n = weight[0], k = weight[1], rows = x[0];
  const std::int64_t at_once = max_rows(n, segments);
  const bool fits = tuned_ != nullptr && k / segments % 8 == 0 && n % 8 == 0 && at_once > 0;
  for (std::int64_t begin = 0; begin < rows;) {
    const std::int64_t count = fits ? std::min(at_once, rows - begin) : rows;
    const Tensor own_x = x.rows(begin, count), own_out = out.rows(begin, count);
    begin += count;
    if (fits) {
      const GemmKind kind{n, k, count, x.dtype(), out.dtype(), segments};
      GemmKind bucket = kind;
      bucket.rows = std::min(rows_bucket(count), at_once);
      const auto* const algorithm = tuned_->choose(bucket, weight.data(), stream);
      if (algorithm != nullptr && multiply(kind, *algorithm, weight, own_x, own_out, stream)) {
        if (segments == 1) continue;
        const cudaError_t error = add_segments(memory_.parts->as<float>(), segments, count * n,
                                               own_out.data(), out.dtype(), stream);
        if (error == cudaSuccess) continue;
        return fail(ErrorCode::internal, "the sum of a gemm's segments failed: {}",
                    cudaGetErrorString(error));
      }
    }
    const cudaError_t error = launch_invariant_gemm({.weight = weight.data(),
                                                     .x = own_x.data(),
                                                     .out = own_out.data(),
                                                     .out_dtype = out.dtype(),
                                                     .rows = count,
                                                     .n = n,
                                                     .k = k,
                                                     .segments = segments},
                                                    stream);
    if (error == cudaSuccess) continue;
    return fail(
        ErrorCode::internal, "the batch-invariant gemm of {} and {} in {} segments failed: {}",
        own_x.shape().to_string(), weight.shape().to_string(), segments, cudaGetErrorString(error));
  }
  return {};
}

}  // namespace troupe
