// Shared by the kernels that rotate a pass's queries and store its keys: a warp has a head.
#pragma once

#include <cstdint>

#include "models/ops/attention_ops.hpp"
#include "parallel/device/cuda/device_math.cuh"

namespace troupe::cuda {

constexpr int warp = 32;
constexpr int store_warps = 4;

__device__ inline int lane() { return static_cast<int>(threadIdx.x) % warp; }

/// 1 / rms of a head, computed by a warp.
template <class T>
__device__ float inverse_rms(const T* x, int dim, float eps) {
  float squares = 0.0F;
  for (int i = lane(); i < dim; i += warp) {
    const float value = load(x + i);
    squares += value * value;
  }
  return rsqrtf(warp_sum(squares) / static_cast<float>(dim) + eps);
}

/// Scales (weight may be null) and rotates a head, by a warp. `rope` is the position's row.
template <class T, class Out>
__device__ void scale_and_rotate(const T* x, float scale, const float* weight, const float* rope,
                                 int dim, Out* out) {
  const int half = dim / 2;
  for (int i = lane(); i < half; i += warp) {
    float a = load(x + i), b = load(x + half + i);
    if (weight != nullptr) {
      a = a * scale * weight[i];
      b = b * scale * weight[half + i];
    }
    const float cosine = rope[i], sine = rope[half + i];
    store(out + i, a * cosine - b * sine);
    store(out + half + i, b * cosine + a * sine);
  }
}

struct StoreShape {
  int heads, kv_heads, head_dim, latent, block_size;
  float eps;
};

/// The offset of a KV head's row of a slot, in keys or values.
__device__ inline std::int64_t cache_row(const StoreShape& shape, std::int32_t slot, int kv_head) {
  const std::int64_t block = slot / shape.block_size, offset = slot % shape.block_size;
  return ((block * shape.kv_heads + kv_head) * shape.block_size + offset) * shape.head_dim;
}

/// The head of this warp: a block has one token and store_warps heads, a warp each.
__device__ inline int head_of_warp() {
  return static_cast<int>(blockIdx.y) * store_warps + static_cast<int>(threadIdx.x) / warp;
}

inline StoreShape store_shape(const AttentionShape& shape, const AttentionBatch& batch, float eps) {
  return {static_cast<int>(shape.heads),
          static_cast<int>(shape.kv_heads),
          static_cast<int>(shape.head_dim),
          static_cast<int>(shape.latent),
          batch.block_size,
          eps};
}

}  // namespace troupe::cuda
