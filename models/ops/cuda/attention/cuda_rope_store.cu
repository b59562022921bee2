// Keys and values into the paged cache, for any head size and both types.
#include "models/ops/cuda/attention/coded_store.hpp"
#include "models/ops/cuda/attention/cuda_attention_ops.hpp"
#include "models/ops/cuda/attention/rope_store.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

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

/// Heads, or pairs of them, whose elements a warp loads concurrently.
constexpr int heads_at_once = 4;

/// Returns the destination of a token's head. Heads are numbered queries, then keys, then values.
__device__ __forceinline__ bf16* place_of(const StoreShape& shape, std::int64_t token, int head,
                                          std::int32_t slot, bf16* keys, bf16* values,
                                          bf16* q_out) {
  const int key = head - shape.heads, value = key - shape.kv_heads;
  if (key < 0) return q_out + (token * shape.heads + head) * shape.head_dim;
  return value < 0 ? keys + cache_row(shape, slot, key) : values + cache_row(shape, slot, value);
}

/// Rotates two adjacent pairs of elements, of a head's lower and upper half.
__device__ __forceinline__ void store_rotated(float2 low, float2 high, float2 cosine, float2 sine,
                                              bf16* to_low, bf16* to_high) {
  using Pair = __nv_bfloat162;
  *reinterpret_cast<Pair*>(to_low) =
      __floats2bfloat162_rn(low.x * cosine.x - high.x * sine.x, low.y * cosine.y - high.y * sine.y);
  *reinterpret_cast<Pair*>(to_high) =
      __floats2bfloat162_rn(high.x * cosine.x + low.x * sine.x, high.y * cosine.y + low.y * sine.y);
}

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
    bf16* const to = place_of(shape, token, head, slot, keys, values, q_out);
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
      store_rotated(low[i], high[i], c, s, to + own_pair(i), to + half + own_pair(i));
    }
  }
}

/// norm_rope_store_heads for bf16 and heads of 64 elements without norms: half a warp has a head,
/// and a lane an adjacent pair in each half of it. A warp has 2 * `pairs` consecutive heads.
template <int pairs>
__global__ void rope_store_half_warps(const bf16* qkv, const float* rope,
                                      const std::int32_t* positions, const std::int32_t* slots,
                                      StoreShape shape, bf16* keys, bf16* values, bf16* q_out) {
  constexpr int dim = 64, half = dim / 2, lanes = warp / 2;
  begin_early_kernel();
  const int all = shape.heads + 2 * shape.kv_heads;
  const int first = head_of_warp() * 2 * pairs + lane() / lanes, element = lane() % lanes * 2;
  const std::int64_t token = blockIdx.x;
  using Pair = __nv_bfloat162;
  Pair low[pairs], high[pairs];
#pragma unroll
  for (int i = 0; i < pairs; ++i) {
    const bf16* const from = qkv + (token * all + min(first + 2 * i, all - 1)) * dim + element;
    low[i] = *reinterpret_cast<const Pair*>(from);
    high[i] = *reinterpret_cast<const Pair*>(from + half);
  }
  const float* const angles = rope + std::int64_t{positions[token]} * dim + element;
  const auto cosine = *reinterpret_cast<const float2*>(angles);
  const auto sine = *reinterpret_cast<const float2*>(angles + half);
  const std::int32_t slot = slots[token];
#pragma unroll
  for (int i = 0; i < pairs; ++i) {
    const int head = first + 2 * i;
    if (head >= all) return;
    const bool is_value = head >= shape.heads + shape.kv_heads;
    bf16* const to = place_of(shape, token, head, slot, keys, values, q_out) + element;
    store_rotated(__bfloat1622float2(low[i]), __bfloat1622float2(high[i]),
                  is_value ? float2{1.0F, 1.0F} : cosine, is_value ? float2{0.0F, 0.0F} : sine, to,
                  to + half);
  }
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

cudaError_t store_half_warps(const Tensor& qkv, const Tensor& rope, const AttentionShape& shape,
                             const AttentionBatch& batch, const KvLayer& cache, const Tensor& q_out,
                             cudaStream_t stream) {
  const std::int64_t tokens = batch.positions[0];
  const int pairs = tokens <= few_tokens ? 1 : heads_at_once;
  const Grid grid{dim3(static_cast<unsigned>(tokens),
                       blocks_of(shape.heads + 2 * shape.kv_heads, store_warps * 2 * pairs)),
                  warp * store_warps};
  return launch_early(pairs == 1 ? rope_store_half_warps<1> : rope_store_half_warps<heads_at_once>,
                      grid, stream, static_cast<const bf16*>(qkv.data()), rope.as<float>(),
                      batch.positions.as<std::int32_t>(), batch.kv_slots.as<std::int32_t>(),
                      store_shape(shape, batch, 0.0F), static_cast<bf16*>(cache.keys.data()),
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
  if (is_code(cache.keys.dtype())) {
    check(store_coded_heads(qkv, q_norm, k_norm, eps, rope, shape, batch, cache, q_out, stream()),
          "norm_rope_store");
    return;
  }
  const bool is_bf16 = qkv.dtype() == DType::bf16 && cache.keys.dtype() == DType::bf16;
  if (is_bf16 && shape.head_dim == 64 && q_norm.empty() && k_norm.empty()) {
    check(store_half_warps(qkv, rope, shape, batch, cache, q_out, stream()), "norm_rope_store");
    return;
  }
  if (is_bf16 && (shape.head_dim == 128 || shape.head_dim == 256)) {
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

}  // namespace troupe
