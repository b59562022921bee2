#include "models/ops/cuda/attention/coded_decode_kernel.cuh"

namespace troupe {

template cudaError_t cuda::launch_coded<cuda::Int4Code, cuda::Int4Code>(const DecodePass&, int, int,
                                                                        bool, cudaStream_t);

}  // namespace troupe
