#include "models/ops/cuda/attention/coded_decode_kernel.cuh"

namespace troupe {

template cudaError_t cuda::launch_coded<cuda::Fp8Code>(const DecodePass&, int, int, bool,
                                                       cudaStream_t);

cudaError_t launch_coded_decode_attention(const DecodePass& pass, DType stored, int blocks,
                                          int head_dim, bool early, cudaStream_t stream) {
  if (stored == DType::i8) {
    return cuda::launch_coded<cuda::Int8Code>(pass, blocks, head_dim, early, stream);
  }
  return cuda::launch_coded<cuda::Fp8Code>(pass, blocks, head_dim, early, stream);
}

}  // namespace troupe
