// Keys of int4 with residuals, which are codes of 8 bits, and values without (KvResidual).
#include "models/ops/cuda/attention/coded_decode_kernel.cuh"

namespace troupe {

template cudaError_t cuda::launch_coded<cuda::Int8Code, cuda::Int4Code>(const DecodePass&, int, int,
                                                                        bool, cudaStream_t);

}  // namespace troupe
