#include <utility>

#include "models/ops/cuda/sampling/cuda_sampling_ops.hpp"
#include "models/ops/cuda/sampling/row_summary.hpp"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr std::int64_t max_sampled_rows = 65536;
constexpr unsigned id_threads = 256;

__global__ void resolve_sampled_ids_kernel(const std::int32_t* chosen, std::int64_t count,
                                           std::int32_t* ids) {
  begin_early_kernel();
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count && ids[i] < 0) ids[i] = max(chosen[-1 - ids[i]], 0);
}

}  // namespace
}  // namespace cuda

Result<std::unique_ptr<CudaSamplingOps>> CudaSamplingOps::create(CudaContext& context) {
  std::unique_ptr<CudaSamplingOps> sampling(new CudaSamplingOps(context));
  TROUPE_TRY(
      sampling->sampled_rows_,
      context.allocate(DType::u8, {cuda::max_sampled_rows * std::int64_t{sizeof(SampledRow)}}));
  TROUPE_TRY(sampling->row_summaries_, context.allocate(DType::u8, {sizeof(cuda::SummaryMemory)}));
  return Result<std::unique_ptr<CudaSamplingOps>>(std::move(sampling));
}

void CudaSamplingOps::do_resolve_sampled_ids(const Tensor& chosen, const Tensor& ids) {
  if (ids.empty()) return;
  check(cuda::launch_early(cuda::resolve_sampled_ids_kernel,
                           {cuda::blocks_of(ids.elements(), cuda::id_threads), cuda::id_threads},
                           stream(), chosen.as<std::int32_t>(), ids.elements(),
                           ids.as<std::int32_t>()),
        "resolve_sampled_ids");
}

}  // namespace troupe
