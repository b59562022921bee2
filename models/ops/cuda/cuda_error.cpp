#include "models/ops/cuda/cuda_error.hpp"

namespace troupe {

Result<void> cuda_done(cudaError_t error, std::string_view operation) {
  if (error == cudaSuccess) return {};
  const bool memory = error == cudaErrorMemoryAllocation;
  return fail(memory ? ErrorCode::resource_exhausted : ErrorCode::internal, "{} failed: {}",
              operation, cudaGetErrorString(error));
}

}  // namespace troupe
