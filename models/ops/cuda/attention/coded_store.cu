// Keys and values as codes into the paged cache: a warp has a head.
#include "models/ops/cuda/attention/coded_store.hpp"
#include "models/ops/cuda/attention/int4_scale.cuh"
#include "models/ops/cuda/attention/kv_code.cuh"
#include "models/ops/cuda/attention/rope_store.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

/// Two adjacent elements.
__device__ __forceinline__ float2 load_pair(const float* from) {
  return *reinterpret_cast<const float2*>(from);
}
__device__ __forceinline__ float2 load_pair(const bf16* from) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(from));
}
__device__ __forceinline__ void store_pair(float* to, float2 pair) {
  *reinterpret_cast<float2*>(to) = pair;
}
__device__ __forceinline__ void store_pair(bf16* to, float2 pair) {
  *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(pair.x, pair.y);
}

struct CodedStore {
  const float* q_norm;  ///< [head_dim], or null
  const float* k_norm;
  const float* rope;
  const std::int32_t* positions;
  const std::int32_t* slots;
  StoreShape shape;
  float key_scale, value_scale;  ///< of a checkpoint, or 0
  std::uint8_t* keys;
  std::uint8_t* values;
};

/// A head of which each lane has up to `turns` pairs of elements in either half.
template <int turns>
struct HeadPairs {
  float2 low[turns] = {}, high[turns] = {};

  /// The first element of this lane's pair; beyond the half if there is none.
  static __device__ __forceinline__ int element(int turn) { return 2 * (turn * warp + lane()); }

  template <class T>
  __device__ void read(const T* x, int half) {
#pragma unroll
    for (int i = 0; i < turns; ++i) {
      if (element(i) >= half) continue;
      low[i] = load_pair(x + element(i));
      high[i] = load_pair(x + half + element(i));
    }
  }
  __device__ void normalise(const HeadPairs& weight, int half, float eps) {
    float squares = 0.0F;
#pragma unroll
    for (int i = 0; i < turns; ++i) {
      squares +=
          low[i].x * low[i].x + low[i].y * low[i].y + high[i].x * high[i].x + high[i].y * high[i].y;
    }
    const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(2 * half) + eps);
#pragma unroll
    for (int i = 0; i < turns; ++i) {
      const float2 a = weight.low[i], b = weight.high[i];
      low[i] = {low[i].x * scale * a.x, low[i].y * scale * a.y};
      high[i] = {high[i].x * scale * b.x, high[i].y * scale * b.y};
    }
  }
  /// `angles`: cosines in the lower half, sines in the upper.
  __device__ void rotate(const HeadPairs& angles) {
#pragma unroll
    for (int i = 0; i < turns; ++i) {
      const float2 c = angles.low[i], s = angles.high[i], a = low[i], b = high[i];
      low[i] = {a.x * c.x - b.x * s.x, a.y * c.y - b.y * s.y};
      high[i] = {b.x * c.x + a.x * s.x, b.y * c.y + a.y * s.y};
    }
  }
  template <class T>
  __device__ void write(T* to, int half) const {
#pragma unroll
    for (int i = 0; i < turns; ++i) {
      if (element(i) >= half) continue;
      store_pair(to + element(i), low[i]);
      store_pair(to + half + element(i), high[i]);
    }
  }
  /// `row`: shared memory of this warp for the head's elements, of 4-bit codes.
  template <class Code>
  __device__ void write_codes(std::uint8_t* to, std::uint8_t* to_scale, int half, float fixed_scale,
                              float* row) const {
    const __half scale = scale_of<Code>(half, fixed_scale, row);
    const float inverse = inverse_of(scale);
    if (lane() == 0) *reinterpret_cast<__half*>(to_scale) = scale;
    const auto write_two = [&](int at, float2 of) {
      const uchar2 codes{Code::narrow(of.x, inverse), Code::narrow(of.y, inverse)};
      if constexpr (Code::in_byte == 2) {
        to[at / 2] = static_cast<std::uint8_t>(codes.x | codes.y << 4);
      } else {
        *reinterpret_cast<uchar2*>(to + at) = codes;
      }
    };
#pragma unroll
    for (int i = 0; i < turns; ++i) {
      if (element(i) >= half) continue;
      write_two(element(i), low[i]);
      write_two(half + element(i), high[i]);
    }
  }

 private:
  template <class Code>
  __device__ __half scale_of(int half, float fixed_scale, float* row) const {
    if constexpr (Code::in_byte == 2) {
      __syncwarp();  // what was there is read
      write(row, half);
      __syncwarp();
      return int4_scale<8 * turns>(row, 2 * half);
    } else {
      float largest = 0.0F;
#pragma unroll
      for (int i = 0; i < turns; ++i) {
        largest = fmaxf(largest, fmaxf(fmaxf(fabsf(low[i].x), fabsf(low[i].y)),
                                       fmaxf(fabsf(high[i].x), fabsf(high[i].y))));
      }
      return row_scale<Code>(warp_max(largest), fixed_scale);
    }
  }
};

template <class Keys, class Values>
struct PagesOfBoth {
  CodedPages keys, values;

  __device__ explicit PagesOfBoth(const StoreShape& of) {
    const int key_bytes = of.head_dim / Keys::in_byte, value_bytes = of.head_dim / Values::in_byte;
    const std::int64_t pitch = coded_pitch(of.block_size, key_bytes, value_bytes);
    keys = {of.kv_heads, of.block_size, key_bytes, pitch};
    values = {of.kv_heads, of.block_size, value_bytes, pitch};
  }
};

/// For heads of up to 128 * turns elements, a multiple of 4. Heads are numbered queries, then keys,
/// then values; a warp has `heads` of them in a row.
template <class T, class Keys, class Values, int turns, int heads>
__global__ void store_heads(const __grid_constant__ CodedStore of, const T* qkv, T* q_out) {
  constexpr bool is_searched = Keys::in_byte == 2 || Values::in_byte == 2;
  __shared__ float rows[store_warps][is_searched ? 128 * turns : 1];
  float* const row = rows[threadIdx.x / warp];
  let_next_kernel_start();
  const StoreShape& shape = of.shape;
  const int all = shape.heads + 2 * shape.kv_heads, half = shape.head_dim / 2;
  const int first = head_of_warp() * heads;
  const std::int64_t token = blockIdx.x;
  // Data that no kernel writes is loaded while earlier kernels end.
  HeadPairs<turns> q_weight, k_weight;
  if (of.q_norm != nullptr) q_weight.read(of.q_norm, half);
  if (of.k_norm != nullptr) k_weight.read(of.k_norm, half);
  wait_for_kernels_before();
  if (first >= all) return;
  HeadPairs<turns> pairs[heads], angles;
#pragma unroll
  for (int h = 0; h < heads; ++h) {
    pairs[h].read(qkv + (token * all + min(first + h, all - 1)) * shape.head_dim, half);
  }
  angles.read(of.rope + std::int64_t{of.positions[token]} * shape.head_dim, half);
  const PagesOfBoth<Keys, Values> pages(shape);
  const int block = of.slots[token] / shape.block_size, offset = of.slots[token] % shape.block_size;
#pragma unroll
  for (int h = 0; h < heads; ++h) {
    const int head = first + h;
    if (head >= all) return;
    const int key = head - shape.heads, value = key - shape.kv_heads;
    if (value < 0) {
      if ((key < 0 ? of.q_norm : of.k_norm) != nullptr) {
        pairs[h].normalise(key < 0 ? q_weight : k_weight, half, shape.eps);
      }
      pairs[h].rotate(angles);
    }
    if (key < 0) {
      pairs[h].write(q_out + (token * shape.heads + head) * shape.head_dim, half);
      continue;
    }
    if (value < 0) {
      std::uint8_t* const page = of.keys + pages.keys.page(block, key);
      pairs[h].template write_codes<Keys>(page + pages.keys.row(offset),
                                          page + pages.keys.scale(offset), half, of.key_scale, row);
    } else {
      std::uint8_t* const page = of.values + pages.values.page(block, value);
      pairs[h].template write_codes<Values>(page + pages.values.row(offset),
                                            page + pages.values.scale(offset), half, of.value_scale,
                                            row);
    }
  }
}

const float* floats_of(const Tensor& tensor) {
  return tensor.empty() ? nullptr : tensor.as<float>();
}

template <class T, class Keys, class Values, int turns>
cudaError_t launch(const CodedStore& of, const Tensor& qkv, const Tensor& q_out,
                   cudaStream_t stream) {
  // Several heads of a warp share what they load of a token, but wait for each other: measured on
  // an H200 for 48 heads of 128, one head takes 4.3 in place of 5.5 us for 256 tokens, four
  // take 13.9 in place of 16.3 for 1,024.
  constexpr std::int64_t few_tokens = 512;
  constexpr int heads_at_once = 4;
  const int heads = qkv[0] <= few_tokens ? 1 : heads_at_once;
  const Grid grid{dim3(static_cast<unsigned>(qkv[0]),
                       blocks_of(of.shape.heads + 2 * of.shape.kv_heads, store_warps * heads)),
                  warp * store_warps};
  const auto kernel = heads == 1 ? store_heads<T, Keys, Values, turns, 1>
                                 : store_heads<T, Keys, Values, turns, heads_at_once>;
  return launch_early(kernel, grid, stream, of, static_cast<const T*>(qkv.data()),
                      static_cast<T*>(q_out.data()));
}

template <class T, class Keys, class Values>
cudaError_t launch(const CodedStore& of, const Tensor& qkv, const Tensor& q_out,
                   cudaStream_t stream) {
  return of.shape.head_dim <= 128 ? launch<T, Keys, Values, 1>(of, qkv, q_out, stream)
                                  : launch<T, Keys, Values, 2>(of, qkv, q_out, stream);
}

}  // namespace
}  // namespace cuda

using namespace cuda;

cudaError_t store_coded_heads(const Tensor& qkv, const Tensor& q_norm, const Tensor& k_norm,
                              float eps, const Tensor& rope, const AttentionShape& shape,
                              const AttentionBatch& batch, const KvLayer& cache,
                              const Tensor& q_out, cudaStream_t stream) {
  const CodedStore of{.q_norm = floats_of(q_norm),
                      .k_norm = floats_of(k_norm),
                      .rope = rope.as<float>(),
                      .positions = batch.positions.as<std::int32_t>(),
                      .slots = batch.kv_slots.as<std::int32_t>(),
                      .shape = store_shape(shape, batch, eps),
                      .key_scale = shape.key_scale,
                      .value_scale = shape.value_scale,
                      .keys = static_cast<std::uint8_t*>(cache.keys.data()),
                      .values = static_cast<std::uint8_t*>(cache.values.data())};
  cudaError_t launched = cudaSuccess;
  with_type(qkv.dtype(), [&](auto* type) {
    with_codes(cache.keys.dtype(), cache.values.dtype(), [&](auto* of_keys, auto* of_values) {
      launched =
          launch<element<decltype(type)>, element<decltype(of_keys)>, element<decltype(of_values)>>(
              of, qkv, q_out, stream);
    });
  });
  return launched;
}

}  // namespace troupe
