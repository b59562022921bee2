#include "models/ops/cuda/attention/coded_decode_kernel.cuh"

namespace troupe {

template cudaError_t cuda::launch_coded<cuda::Int8Code, cuda::Int8Code>(const DecodePass&, int, int,
                                                                        bool, cudaStream_t);

}  // namespace troupe
