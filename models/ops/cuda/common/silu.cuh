#pragma once

namespace troupe::cuda {

/// silu(gate) = gate * sigmoid(gate) for results that are rounded to bf16.
__device__ __forceinline__ float fast_silu(float gate) {
  return __fdividef(gate, 1.0F + __expf(-gate));
}

/// The same, exact enough for f32 results.
__device__ __forceinline__ float silu(float gate) { return gate / (1.0F + expf(-gate)); }

}  // namespace troupe::cuda
