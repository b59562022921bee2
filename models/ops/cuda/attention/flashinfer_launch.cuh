#pragma once

#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/variants.cuh>

#include "models/ops/cuda/attention/flashinfer_kernels.cuh"

namespace troupe::flash {

using WindowAttention = flashinfer::DefaultAttention<false, true, false, false>;

/// What FlashInfer's kernels call for scores and results: a window and sinks, which may be absent,
/// and a soft cap. No custom mask, no ALiBi.
template <bool has_cap>
struct Variant : WindowAttention {
  float inward = 0.0F;  ///< of a product, so that powers of two are those of e^(2 score / cap)

  template <class Params>
  __device__ __host__ Variant(const Params& params, std::uint32_t sequence, std::uint8_t* memory)
      : WindowAttention(params, sequence, memory) {
    if constexpr (has_cap) {
      constexpr float log2_e = flashinfer::math::log2e;
      inward = 2.0F * log2_e * params.sm_scale / params.logits_soft_cap;
      sm_scale_log2 = log2_e * params.logits_soft_cap;
    }
  }

  template <class Params, class T>
  __device__ __forceinline__ T LogitsTransform(const Params& params, T product, std::uint32_t,
                                               std::uint32_t, std::uint32_t, std::uint32_t,
                                               std::uint32_t) {
    if constexpr (!has_cap) return product;
    const float power = flashinfer::math::ptx_exp2(product * inward);
    return 1.0F - 2.0F * flashinfer::math::ptx_rcp(power + 1.0F);  // tanh
  }

  /// The sink counts once, in a context's first part.
  template <class Params, class Maximum>
  __device__ __forceinline__ void update_m_d(const Params& params, std::uint32_t part,
                                             std::uint32_t head, Maximum& maximum, float& total,
                                             float& scale) {
    scale = 1.0F;
    if (params.sinks == nullptr || part != 0) return;
    const float sink = params.sinks[head] * flashinfer::math::log2e;
    const float now = sink > maximum ? sink : maximum;
    scale = flashinfer::math::ptx_exp2(maximum - now);
    total = flashinfer::math::ptx_exp2(sink - now) + total * scale;
    maximum = now;
  }

  template <class Params, class T, class Maximum>
  __device__ __forceinline__ T OutputTransform(const Params&, T sum, std::uint32_t, std::uint32_t,
                                               std::uint32_t, Maximum& maximum, float& total,
                                               float scale) {
    const float inverse =
        maximum != -flashinfer::math::inf ? flashinfer::math::ptx_rcp(total) : 0.0F;
    return sum * scale * inverse;
  }
};

/// The kernel may start before the one before it has ended (launch.cuh), of which it reads nothing
/// before it waits for it.
template <std::uint32_t tile, std::uint32_t head_dim, bool has_cap>
cudaError_t launch_tile(const Parameters& parameters, Element* sums, float* scales,
                        cudaStream_t stream) {
  return flashinfer::BatchPrefillWithPagedKVCacheDispatched<
      true, tile, head_dim, head_dim, flashinfer::PosEncodingMode::kNone, false,
      flashinfer::MaskMode::kCausal, Variant<has_cap>>(parameters, sums, scales, true, stream);
}

template <std::uint32_t head_dim, bool has_cap>
cudaError_t launch_tile(std::int64_t tile, const Parameters& parameters, Element* sums,
                        float* scales, cudaStream_t stream) {
  switch (tile) {
    case 16:
      return launch_tile<16, head_dim, has_cap>(parameters, sums, scales, stream);
    case 64:
      return launch_tile<64, head_dim, has_cap>(parameters, sums, scales, stream);
    case 128:
      // FlashInfer plans no such tiles for larger heads.
      if constexpr (head_dim < 256) {
        return launch_tile<128, head_dim, has_cap>(parameters, sums, scales, stream);
      }
      return cudaErrorInvalidValue;
    default:
      return cudaErrorInvalidValue;
  }
}

template <std::uint32_t head_dim>
cudaError_t launch(std::int64_t tile, bool has_cap, const Parameters& parameters, Element* sums,
                   float* scales, cudaStream_t stream) {
  return has_cap ? launch_tile<head_dim, true>(tile, parameters, sums, scales, stream)
                 : launch_tile<head_dim, false>(tile, parameters, sums, scales, stream);
}

}  // namespace troupe::flash
