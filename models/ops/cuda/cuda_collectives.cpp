#include "models/ops/cuda/cuda_collectives.hpp"

#include "models/ops/cuda/cuda_ops_impl.hpp"
#include "parallel/collectives/nccl/nccl_collectives.hpp"

namespace troupe {

Result<std::unique_ptr<Collectives>> join_cuda_ranks(Ops& ops, Collectives& host,
                                                     const DeviceGroup& group) {
  CudaContext& cuda = static_cast<CudaOps&>(ops).context();
  NcclSeat seat{
      .device = cuda.device(), .stream = cuda.stream(), .watch = cuda.watch(), .group = group};
  TROUPE_TRY(auto joined, NcclCollectives::join(std::move(seat), host));
  return std::unique_ptr<Collectives>(std::move(joined));
}

}  // namespace troupe
