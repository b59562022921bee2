#pragma once

#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/variants.cuh>

#include "models/ops/cuda/attention/flashinfer_kernels.cuh"

namespace troupe::flash {

/// A window, which may be absent; no custom mask, soft cap or ALiBi.
using Variant = flashinfer::DefaultAttention<false, true, false, false>;

/// The kernel may start before the one before it has ended (launch.cuh), of which it reads nothing
/// before it waits for it.
template <std::uint32_t tile, std::uint32_t head_dim>
cudaError_t launch_tile(const Parameters& parameters, Element* sums, float* scales,
                        cudaStream_t stream) {
  return flashinfer::BatchPrefillWithPagedKVCacheDispatched<
      true, tile, head_dim, head_dim, flashinfer::PosEncodingMode::kNone, false,
      flashinfer::MaskMode::kCausal, Variant>(parameters, sums, scales, true, stream);
}

template <std::uint32_t head_dim>
cudaError_t launch(std::int64_t tile, const Parameters& parameters, Element* sums, float* scales,
                   cudaStream_t stream) {
  switch (tile) {
    case 16:
      return launch_tile<16, head_dim>(parameters, sums, scales, stream);
    case 64:
      return launch_tile<64, head_dim>(parameters, sums, scales, stream);
    case 128:
      return launch_tile<128, head_dim>(parameters, sums, scales, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace troupe::flash
