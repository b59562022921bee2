#include "models/ops/cuda/attention/coded_decode_kernel.cuh"

namespace troupe {

template cudaError_t cuda::launch_coded<cuda::Fp8Code, cuda::Fp8Code>(const DecodePass&, int, int,
                                                                      bool, cudaStream_t);

cudaError_t launch_coded_decode_attention(const DecodePass& pass, DType keys, DType values,
                                          int blocks, int head_dim, bool early,
                                          cudaStream_t stream) {
  cudaError_t launched = cudaSuccess;
  cuda::with_codes(keys, values, [&](auto* of_keys, auto* of_values) {
    launched =
        cuda::launch_coded<cuda::element<decltype(of_keys)>, cuda::element<decltype(of_values)>>(
            pass, blocks, head_dim, early, stream);
  });
  return launched;
}

}  // namespace troupe
