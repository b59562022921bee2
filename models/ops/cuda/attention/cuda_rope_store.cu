// Keys and values into the paged cache, for any head size and both types.
#include "models/ops/cuda/attention/cuda_attention_ops.hpp"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr int warp = 32;
constexpr int store_warps = 4;

__device__ int lane() { return static_cast<int>(threadIdx.x) % warp; }

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
__device__ std::int64_t cache_row(const StoreShape& shape, std::int32_t slot, int kv_head) {
  const std::int64_t block = slot / shape.block_size, offset = slot % shape.block_size;
  return ((block * shape.kv_heads + kv_head) * shape.block_size + offset) * shape.head_dim;
}

/// The head of this warp: a block has one token and store_warps heads, a warp each.
__device__ int head_of_warp() {
  return static_cast<int>(blockIdx.y) * store_warps + static_cast<int>(threadIdx.x) / warp;
}

template <class T, class Stored>
__global__ void norm_rope_store_heads(const T* qkv, const float* q_norm, const float* k_norm,
                                      const float* rope, const std::int32_t* positions,
                                      const std::int32_t* slots, StoreShape shape, Stored* keys,
                                      Stored* values, T* q_out) {
  begin_early_kernel();
  const int all = shape.heads + 2 * shape.kv_heads, dim = shape.head_dim;
  const int head = head_of_warp();
  if (head >= all) return;
  const std::int64_t token = blockIdx.x;
  const T* x = qkv + (token * all + head) * dim;
  const float* angles = rope + std::int64_t{positions[token]} * dim;
  const bool is_query = head < shape.heads, is_value = head >= shape.heads + shape.kv_heads;
  if (is_value) {
    Stored* to = values + cache_row(shape, slots[token], head - shape.heads - shape.kv_heads);
    for (int i = lane(); i < dim; i += warp) store(to + i, load(x + i));
    return;
  }
  const float* weight = is_query ? q_norm : k_norm;
  const float scale = weight == nullptr ? 1.0F : inverse_rms(x, dim, shape.eps);
  if (is_query) {
    scale_and_rotate(x, scale, weight, angles, dim, q_out + (token * shape.heads + head) * dim);
  } else {
    scale_and_rotate(x, scale, weight, angles, dim,
                     keys + cache_row(shape, slots[token], head - shape.heads));
  }
}

/// Heads whose elements a warp loads concurrently.
constexpr int heads_at_once = 4;

/// The first element of a lane's i-th adjacent pair in half of a head.
__device__ __forceinline__ int own_pair(int i) { return (i * warp + lane()) * 2; }

/// Reads this lane's elements of both halves of a head.
template <int pairs>
__device__ __forceinline__ void read_halves(const float* from, float2 (&low)[pairs],
                                            float2 (&high)[pairs]) {
  constexpr int half = 2 * warp * pairs;
#pragma unroll
  for (int i = 0; i < pairs; ++i) {
    low[i] = *reinterpret_cast<const float2*>(from + own_pair(i));
    high[i] = *reinterpret_cast<const float2*>(from + half + own_pair(i));
  }
}

/// norm_rope_store_heads for bf16 and heads of 128 * pairs elements: a lane has `pairs` adjacent
/// pairs in each half of a head. A warp has `heads` consecutive heads of one token.
template <int pairs, int heads>
__global__ void norm_rope_store_pairs(const bf16* qkv, const float* q_norm, const float* k_norm,
                                      const float* rope, const std::int32_t* positions,
                                      const std::int32_t* slots, StoreShape shape, bf16* keys,
                                      bf16* values, bf16* q_out) {
  constexpr int half = 2 * warp * pairs, dim = 2 * half;
  using Pair = __nv_bfloat162;
  const int all = shape.heads + 2 * shape.kv_heads;
  const int first = head_of_warp() * heads;
  const std::int64_t token = blockIdx.x;
  let_next_kernel_start();
  // Data that no kernel writes is loaded while earlier kernels end.
  float2 q_weight[2][pairs], k_weight[2][pairs];
  if (q_norm != nullptr) read_halves(q_norm, q_weight[0], q_weight[1]);
  if (k_norm != nullptr) read_halves(k_norm, k_weight[0], k_weight[1]);
  wait_for_kernels_before();
  if (first >= all) return;
  Pair x[heads][2][pairs];
#pragma unroll
  for (int h = 0; h < heads; ++h) {
    const bf16* from = qkv + (token * all + min(first + h, all - 1)) * dim;
#pragma unroll
    for (int i = 0; i < pairs; ++i) {
      x[h][0][i] = *reinterpret_cast<const Pair*>(from + own_pair(i));
      x[h][1][i] = *reinterpret_cast<const Pair*>(from + half + own_pair(i));
    }
  }
  float2 cosine[pairs], sine[pairs];
  read_halves(rope + std::int64_t{positions[token]} * dim, cosine, sine);
  const std::int32_t slot = slots[token];
#pragma unroll
  for (int h = 0; h < heads; ++h) {
    const int head = first + h;
    if (head >= all) return;
    const bool is_query = head < shape.heads, is_value = head >= shape.heads + shape.kv_heads;
    bf16* const to = is_query ? q_out + (token * shape.heads + head) * dim
                     : is_value
                         ? values + cache_row(shape, slot, head - shape.heads - shape.kv_heads)
                         : keys + cache_row(shape, slot, head - shape.heads);
    float2 low[pairs], high[pairs];
    float squares = 0.0F;
#pragma unroll
    for (int i = 0; i < pairs; ++i) {
      low[i] = __bfloat1622float2(x[h][0][i]);
      high[i] = __bfloat1622float2(x[h][1][i]);
      squares +=
          low[i].x * low[i].x + low[i].y * low[i].y + high[i].x * high[i].x + high[i].y * high[i].y;
    }
    if (!is_value && (is_query ? q_norm : k_norm) != nullptr) {
      const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(dim) + shape.eps);
#pragma unroll
      for (int i = 0; i < pairs; ++i) {
        const float2 a = is_query ? q_weight[0][i] : k_weight[0][i],
                     b = is_query ? q_weight[1][i] : k_weight[1][i];
        low[i] = {low[i].x * scale * a.x, low[i].y * scale * a.y};
        high[i] = {high[i].x * scale * b.x, high[i].y * scale * b.y};
      }
    }
#pragma unroll
    for (int i = 0; i < pairs; ++i) {
      const float2 c = is_value ? float2{1.0F, 1.0F} : cosine[i];
      const float2 s = is_value ? float2{0.0F, 0.0F} : sine[i];
      *reinterpret_cast<Pair*>(to + own_pair(i)) =
          __floats2bfloat162_rn(low[i].x * c.x - high[i].x * s.x, low[i].y * c.y - high[i].y * s.y);
      *reinterpret_cast<Pair*>(to + half + own_pair(i)) =
          __floats2bfloat162_rn(high[i].x * c.x + low[i].x * s.x, high[i].y * c.y + low[i].y * s.y);
    }
  }
}

/// Like norm_rope_store_heads; the head after the last query is the key.
template <class T, class Stored>
__global__ void latent_rope_store_heads(const T* rotated_q, std::int64_t q_stride, const T* kv,
                                        std::int64_t kv_stride, const float* norm,
                                        const float* rope, const std::int32_t* positions,
                                        const std::int32_t* slots, StoreShape shape, Stored* keys,
                                        T* q_out) {
  begin_early_kernel();
  const int head = head_of_warp();
  if (head > shape.heads) return;
  const std::int64_t token = blockIdx.x;
  const int latent = shape.latent, rotated = shape.head_dim - latent;
  const float* angles = rope + std::int64_t{positions[token]} * rotated;
  if (head == shape.heads) {
    const T* x = kv + token * kv_stride;
    Stored* key = keys + cache_row(shape, slots[token], 0);
    const float scale = inverse_rms(x, latent, shape.eps);
    for (int i = lane(); i < latent; i += warp) store(key + i, load(x + i) * scale * norm[i]);
    scale_and_rotate(x + latent, 1.0F, nullptr, angles, rotated, key + latent);
    return;
  }
  T* q = q_out + (token * shape.heads + head) * shape.head_dim;
  scale_and_rotate(rotated_q + token * q_stride + head * rotated, 1.0F, nullptr, angles, rotated,
                   q + latent);
}

StoreShape store_shape(const AttentionShape& shape, const AttentionBatch& batch, float eps) {
  return {static_cast<int>(shape.heads),
          static_cast<int>(shape.kv_heads),
          static_cast<int>(shape.head_dim),
          static_cast<int>(shape.latent),
          batch.block_size,
          eps};
}

const float* floats_of(const Tensor& tensor) {
  return tensor.empty() ? nullptr : tensor.as<float>();
}

/// With few tokens each warp takes one head, so that more multiprocessors are used.
constexpr std::int64_t few_tokens = 32;

template <int pairs>
auto* pairs_kernel(int heads) {
  return heads == 1 ? norm_rope_store_pairs<pairs, 1> : norm_rope_store_pairs<pairs, heads_at_once>;
}

cudaError_t store_pairs(const Tensor& qkv, const Tensor& q_norm, const Tensor& k_norm, float eps,
                        const Tensor& rope, const AttentionShape& shape,
                        const AttentionBatch& batch, const KvLayer& cache, const Tensor& q_out,
                        bool one_kernel, cudaStream_t stream) {
  const std::int64_t tokens = batch.positions[0];
  const int heads = tokens <= few_tokens && !one_kernel ? 1 : heads_at_once;
  const auto kernel = shape.head_dim == 128 ? pairs_kernel<1>(heads) : pairs_kernel<2>(heads);
  const Grid grid{dim3(static_cast<unsigned>(tokens),
                       blocks_of(shape.heads + 2 * shape.kv_heads, store_warps * heads)),
                  warp * store_warps};
  return launch_early(kernel, grid, stream, static_cast<const bf16*>(qkv.data()), floats_of(q_norm),
                      floats_of(k_norm), rope.as<float>(), batch.positions.as<std::int32_t>(),
                      batch.kv_slots.as<std::int32_t>(), store_shape(shape, batch, eps),
                      static_cast<bf16*>(cache.keys.data()),
                      static_cast<bf16*>(cache.values.data()), static_cast<bf16*>(q_out.data()));
}

}  // namespace
}  // namespace cuda

using namespace cuda;

void CudaAttentionOps::do_norm_rope_store(const Tensor& qkv, const Tensor& q_norm,
                                          const Tensor& k_norm, float eps, const Tensor& rope,
                                          const AttentionShape& shape, const AttentionBatch& batch,
                                          const KvLayer& cache, const Tensor& q_out) {
  const std::int64_t tokens = batch.positions[0];
  if (tokens == 0) return;
  const bool in_pairs = shape.head_dim == 128 || shape.head_dim == 256;
  if (in_pairs && qkv.dtype() == DType::bf16 && cache.keys.dtype() == DType::bf16) {
    check(store_pairs(qkv, q_norm, k_norm, eps, rope, shape, batch, cache, q_out, deterministic_,
                      stream()),
          "norm_rope_store");
    return;
  }
  const Grid grid{
      dim3(static_cast<unsigned>(tokens), blocks_of(shape.heads + 2 * shape.kv_heads, store_warps)),
      warp * store_warps};
  with_type(qkv.dtype(), [&](auto* type) {
    with_type(cache.keys.dtype(), [&](auto* stored) {
      using T = element<decltype(type)>;
      using Stored = element<decltype(stored)>;
      const auto kernel = norm_rope_store_heads<T, Stored>;
      check(launch_early(kernel, grid, stream(), static_cast<const T*>(qkv.data()),
                         floats_of(q_norm), floats_of(k_norm), rope.as<float>(),
                         batch.positions.as<std::int32_t>(), batch.kv_slots.as<std::int32_t>(),
                         store_shape(shape, batch, eps), static_cast<Stored*>(cache.keys.data()),
                         static_cast<Stored*>(cache.values.data()), static_cast<T*>(q_out.data())),
            "norm_rope_store");
    });
  });
}

void CudaAttentionOps::do_latent_rope_store(const Columns& rotated_q, const Columns& kv,
                                            const Tensor& norm, float eps, const Tensor& rope,
                                            const AttentionShape& shape,
                                            const AttentionBatch& batch, const KvLayer& cache,
                                            const Tensor& q_out) {
  const std::int64_t tokens = batch.positions[0];
  if (tokens == 0) return;
  const Grid grid{dim3(static_cast<unsigned>(tokens), blocks_of(shape.heads + 1, store_warps)),
                  warp * store_warps};
  with_type(kv.dtype(), [&](auto* type) {
    with_type(cache.keys.dtype(), [&](auto* stored) {
      using T = element<decltype(type)>;
      using Stored = element<decltype(stored)>;
      const auto kernel = latent_rope_store_heads<T, Stored>;
      check(launch_early(kernel, grid, stream(), static_cast<const T*>(rotated_q.data()),
                         rotated_q.stride(), static_cast<const T*>(kv.data()), kv.stride(),
                         norm.as<float>(), rope.as<float>(), batch.positions.as<std::int32_t>(),
                         batch.kv_slots.as<std::int32_t>(), store_shape(shape, batch, eps),
                         static_cast<Stored*>(cache.keys.data()), static_cast<T*>(q_out.data())),
            "latent_rope_store");
    });
  });
}

}  // namespace troupe
