#include <cuda_runtime.h>

#include "models/ops/cuda/cuda_collectives.hpp"
#include "models/ops/cuda/cuda_ops.hpp"
#include "tests/golden/support/golden_model.hpp"

namespace troupe::golden {

Result<std::unique_ptr<Ops>> make_golden_ops(DType precision, int rank, bool deterministic,
                                             WeightEncoding encoding) {
  return make_cuda_ops(
      {.device = rank, .dtype = precision, .deterministic = deterministic, .encoding = encoding});
}

int max_golden_ranks() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
}

Result<std::unique_ptr<Collectives>> join_golden_ranks(Ops& ops, Collectives& host) {
  return join_cuda_ranks(ops, host, {"golden"});
}

}  // namespace troupe::golden
