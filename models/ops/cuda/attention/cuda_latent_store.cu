// Latents and rotated keys into the paged cache, and the rotated part of queries.
#include "models/ops/cuda/attention/cuda_attention_ops.hpp"
#include "models/ops/cuda/attention/decode_kernel.hpp"
#include "models/ops/cuda/attention/rope_store.cuh"
#include "models/ops/cuda/common/vec8.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

/// A warp per head of a token; the head after the last query is the key.
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

/// latent_rope_store_heads for bf16, latents of 512 elements and 64 rotated ones: a lane has two
/// units of a latent and one rotation. Everything is on its way before anything is used.
__global__ void latent_rope_store_units(const bf16* rotated_q, std::int64_t q_stride,
                                        const bf16* kv, std::int64_t kv_stride, const float* norm,
                                        const float* rope, const std::int32_t* positions,
                                        const std::int32_t* slots, StoreShape shape, bf16* keys,
                                        bf16* q_out) {
  constexpr int dim = latent_key_dim, latent = latent_value_dim, rotated = dim - latent;
  constexpr int half = rotated / 2, lane_units = latent / unit / warp;
  static_assert(half == warp);
  let_next_kernel_start();
  const int head = head_of_warp();
  const bool is_key = head == shape.heads;
  float weights[lane_units][unit], x[lane_units][unit];
#pragma unroll
  for (int i = 0; i < lane_units; ++i) {  // no kernel writes them
    if (is_key) load_unit(norm + (i * warp + lane()) * unit, weights[i]);
  }
  wait_for_kernels_before();
  if (head > shape.heads) return;
  const std::int64_t token = blockIdx.x;
  const bf16* const from = is_key ? kv + token * kv_stride : rotated_q + token * q_stride;
#pragma unroll
  for (int i = 0; i < lane_units; ++i) {
    if (is_key) load_unit(from + (i * warp + lane()) * unit, x[i]);
  }
  const bf16* const turned = from + (is_key ? latent : head * rotated);
  const float a = load(turned + lane()), b = load(turned + half + lane());
  const float* const angles = rope + std::int64_t{positions[token]} * rotated;
  const float cosine = angles[lane()], sine = angles[half + lane()];
  bf16* const to = is_key ? keys + cache_row(shape, slots[token], 0)
                          : q_out + (token * shape.heads + head) * dim;
  store(to + latent + lane(), a * cosine - b * sine);
  store(to + latent + half + lane(), b * cosine + a * sine);
  if (!is_key) return;
  float squares = 0.0F;
#pragma unroll
  for (int i = 0; i < lane_units; ++i) {
#pragma unroll
    for (const float value : x[i]) squares += value * value;
  }
  const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(latent) + shape.eps);
#pragma unroll
  for (int i = 0; i < lane_units; ++i) {
#pragma unroll
    for (int j = 0; j < unit; ++j) x[i][j] = x[i][j] * scale * weights[i][j];
    store_unit(to + (i * warp + lane()) * unit, x[i]);
  }
}

/// True if latent_rope_store_units supports the shape and the latents are aligned to units.
bool has_units(const AttentionShape& shape, const Columns& kv, const KvLayer& cache) {
  return shape.latent == latent_value_dim && shape.head_dim == latent_key_dim &&
         kv.dtype() == DType::bf16 && cache.keys.dtype() == DType::bf16 &&
         kv.stride() % unit == 0 && reinterpret_cast<std::uintptr_t>(kv.data()) % 16 == 0;
}

}  // namespace
}  // namespace cuda

using namespace cuda;

void CudaAttentionOps::do_latent_rope_store(const Columns& rotated_q, const Columns& kv,
                                            const Tensor& norm, float eps, const Tensor& rope,
                                            const AttentionShape& shape,
                                            const AttentionBatch& batch, const KvLayer& cache,
                                            const Tensor& q_out) {
  const std::int64_t tokens = batch.positions[0];
  if (tokens == 0) return;
  const Grid grid{dim3(static_cast<unsigned>(tokens), blocks_of(shape.heads + 1, store_warps)),
                  warp * store_warps};
  if (has_units(shape, kv, cache)) {
    check(launch_early(latent_rope_store_units, grid, stream(),
                       static_cast<const bf16*>(rotated_q.data()), rotated_q.stride(),
                       static_cast<const bf16*>(kv.data()), kv.stride(), norm.as<float>(),
                       rope.as<float>(), batch.positions.as<std::int32_t>(),
                       batch.kv_slots.as<std::int32_t>(), store_shape(shape, batch, eps),
                       static_cast<bf16*>(cache.keys.data()), static_cast<bf16*>(q_out.data())),
          "latent_rope_store");
    return;
  }
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
