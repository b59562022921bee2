#include "models/ops/cuda/attention/flashinfer_launch.cuh"

namespace troupe::flash {

template cudaError_t launch<64>(std::int64_t, bool, const Parameters&, Element*, float*,
                                cudaStream_t);

}  // namespace troupe::flash
