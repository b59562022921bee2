#include "models/ops/cuda/cuda_ops.hpp"

#include <utility>

#include "models/ops/cuda/cuda_ops_impl.hpp"
#include "models/ops/cuda/device_code.hpp"

namespace troupe {

bool cuda_device_runs_this_build(int device) {
  // Queried by number: querying a kernel would initialise the device, which takes part of a second.
  int major = 0, minor = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
         code_runs_on(TROUPE_CUDA_CODE, major, minor);
}

Result<std::unique_ptr<Ops>> make_cuda_ops(const CudaOpsOptions& options) {
  return CudaOps::create(options);
}

Result<std::unique_ptr<Ops>> CudaOps::create(const CudaOpsOptions& options) {
  if (options.dtype != DType::f32 && options.dtype != DType::bf16) {
    return fail(ErrorCode::invalid_argument, "the GPU computes in f32 or bf16, not in {}",
                to_string(options.dtype));
  }
  if (options.deterministic && options.dtype != DType::bf16) {
    return fail(ErrorCode::unsupported, "deterministic products on GPUs are of bf16, not of {}",
                to_string(options.dtype));
  }
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices);
      error != cudaSuccess || options.device >= devices) {
    return fail(ErrorCode::not_found, "no CUDA device {}: {} devices are there ({})",
                options.device, devices, cudaGetErrorString(error));
  }
  if (!cuda_device_runs_this_build(options.device)) {
    return fail(
        ErrorCode::unsupported,
        "this build has no code for CUDA device {}: it was built for {}; build it again with "
        "that device's in TROUPE_CUDA_CODE",
        options.device, TROUPE_CUDA_CODE);
  }
  TROUPE_TRY(auto context, CudaContext::create(options));
  TROUPE_TRY(auto dense, CudaDenseOps::create(*context));
  TROUPE_TRY(auto attention, CudaAttentionOps::create(*context));
  TROUPE_TRY(auto sampling, CudaSamplingOps::create(*context));
  TROUPE_CHECK(context->synchronize());
  return std::unique_ptr<Ops>(
      new CudaOps(std::move(context), std::move(dense), std::move(attention), std::move(sampling)));
}

CudaOps::~CudaOps() {
  // What is enqueued reads memory that components own.
  cudaStreamSynchronize(context_->stream());
}

}  // namespace troupe
