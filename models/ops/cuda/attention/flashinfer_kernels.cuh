#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <flashinfer/attention/default_prefill_params.cuh>

namespace troupe::flash {

using Element = __nv_bfloat16;
using Id = std::int32_t;

struct Parameters : flashinfer::BatchPrefillPagedParams<Element, Element, Element, Id> {
  using BatchPrefillPagedParams::BatchPrefillPagedParams;

  const float* sinks = nullptr;  ///< AttentionShape::sinks
};

/// Enqueues causal attention of bf16 over pages, as planned for tiles of `tile` query rows (16, 64
/// or 128). `sums` and `scales` are memory for the parts of a context that was split, or null.
/// `has_cap`: parameters.logits_soft_cap is above 0. Each `head_dim` is compiled in a file of its
/// own (flashinfer_kernels_*.cu).
template <std::uint32_t head_dim>
cudaError_t launch(std::int64_t tile, bool has_cap, const Parameters& parameters, Element* sums,
                   float* scales, cudaStream_t stream);

extern template cudaError_t launch<64>(std::int64_t, bool, const Parameters&, Element*, float*,
                                       cudaStream_t);
extern template cudaError_t launch<128>(std::int64_t, bool, const Parameters&, Element*, float*,
                                        cudaStream_t);
extern template cudaError_t launch<256>(std::int64_t, bool, const Parameters&, Element*, float*,
                                        cudaStream_t);

}  // namespace troupe::flash
