// Keys and values as codes into the paged cache: a warp, or half of one, has a head.
#include <type_traits>

#include "models/ops/cuda/attention/coded_store.hpp"
#include "models/ops/cuda/attention/int4_scale.cuh"
#include "models/ops/cuda/attention/kv_code.cuh"
#include "models/ops/cuda/attention/rope_store.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

/// Two adjacent elements: as they are loaded and stored, and as numbers.
template <class T>
using Pair = std::conditional_t<std::is_same_v<T, bf16>, std::uint32_t, float2>;

__device__ __forceinline__ float2 numbers_of(float2 pair) { return pair; }
__device__ __forceinline__ float2 numbers_of(std::uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000U)};
}
__device__ __forceinline__ void round_to(float2& pair, float2 numbers) { pair = numbers; }
__device__ __forceinline__ void round_to(std::uint32_t& pair, float2 numbers) {
  pair = round_pair(numbers.x, numbers.y);
}

/// `pairs` adjacent pairs, which are loaded and stored at once.
template <class T, int pairs>
struct alignas(pairs * sizeof(Pair<T>)) AdjacentPairs {
  Pair<T> at[pairs];
};

/// The lowest `bytes` bytes of codes, stored at once.
template <int bytes>
__device__ __forceinline__ void store_codes(std::uint8_t* to, std::uint32_t codes) {
  if constexpr (bytes == 1) {
    *to = static_cast<std::uint8_t>(codes);
  } else if constexpr (bytes == 2) {
    *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(codes);
  } else {
    static_assert(bytes == 4);
    *reinterpret_cast<std::uint32_t*>(to) = codes;
  }
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

/// How heads lie in a warp: each of the `lanes` lanes of a head has `adjacent` adjacent pairs of
/// elements in either half, `turns` times.
template <int lanes_, int adjacent_, int turns_>
struct HeadLayout {
  static constexpr int lanes = lanes_, adjacent = adjacent_, turns = turns_;
  static constexpr int heads = warp / lanes;      ///< of a warp at a time
  static constexpr int pairs = adjacent * turns;  ///< of a lane in either half
  static constexpr int max_dim = 4 * lanes * pairs;
  /// Heads have max_dim elements, no less.
  static constexpr bool is_full = lanes < warp;

  static __device__ __forceinline__ int half(const StoreShape& shape) {
    return (is_full ? max_dim : shape.head_dim) / 2;
  }
  /// This thread's lane among those of its head, and its head among those of the warp.
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x % lanes); }
  static __device__ __forceinline__ int head() {
    return static_cast<int>(threadIdx.x % warp / lanes);
  }
  /// The first element of this lane's pairs, in the lower half.
  static __device__ __forceinline__ int element(int turn) {
    return 2 * adjacent * (turn * lanes + lane());
  }
  static __device__ __forceinline__ bool has(int turn, int half) {
    return is_full || element(turn) < half;
  }
};
template <int turns>
using WarpPerHead = HeadLayout<warp, 1, turns>;  ///< of any dimension that is a multiple of 4
using HalfWarpPerHead = HeadLayout<warp / 2, 2, 1>;

/// A lane's elements of a head as they are in memory: between loads and their first use these take
/// half of the registers of numbers.
template <class T, class Layout>
struct HeadElements {
  AdjacentPairs<T, Layout::adjacent> low[Layout::turns] = {}, high[Layout::turns] = {};

  __device__ void read(const T* x, int half) {
#pragma unroll
    for (int i = 0; i < Layout::turns; ++i) {
      if (!Layout::has(i, half)) continue;
      using Pairs = AdjacentPairs<T, Layout::adjacent>;
      low[i] = *reinterpret_cast<const Pairs*>(x + Layout::element(i));
      high[i] = *reinterpret_cast<const Pairs*>(x + half + Layout::element(i));
    }
  }
};

/// A lane's elements of a head as numbers. Fused operations are written out, so that all layouts
/// give the same bits: compilers choose others for each.
template <class Layout>
struct HeadNumbers {
  static constexpr int pairs = Layout::pairs;
  float2 low[pairs] = {}, high[pairs] = {};

  HeadNumbers() = default;
  template <class T>
  __device__ explicit HeadNumbers(const HeadElements<T, Layout>& elements) {
#pragma unroll
    for (int i = 0; i < pairs; ++i) {
      low[i] = numbers_of(elements.low[i / Layout::adjacent].at[i % Layout::adjacent]);
      high[i] = numbers_of(elements.high[i / Layout::adjacent].at[i % Layout::adjacent]);
    }
  }
  static __device__ HeadNumbers read(const float* x, int half) {
    HeadElements<float, Layout> elements;
    elements.read(x, half);
    return HeadNumbers(elements);
  }
  __device__ void normalise(const HeadNumbers& weight, int half, float eps) {
    float squares[Layout::adjacent] = {};
#pragma unroll
    for (int i = 0; i < pairs; ++i) {
      const float2 a = low[i], b = high[i];
      squares[i % Layout::adjacent] +=
          __fmaf_rn(b.y, b.y, __fmaf_rn(b.x, b.x, __fmaf_rn(a.x, a.x, __fmul_rn(a.y, a.y))));
    }
    const float scale = rsqrtf(sum_of_head(squares) / static_cast<float>(2 * half) + eps);
#pragma unroll
    for (int i = 0; i < pairs; ++i) {
      const float2 a = weight.low[i], b = weight.high[i];
      low[i] = {low[i].x * scale * a.x, low[i].y * scale * a.y};
      high[i] = {high[i].x * scale * b.x, high[i].y * scale * b.y};
    }
  }
  /// `angles`: cosines in the lower half, sines in the upper.
  __device__ void rotate(const HeadNumbers& angles) {
#pragma unroll
    for (int i = 0; i < pairs; ++i) {
      const float2 c = angles.low[i], s = angles.high[i], a = low[i], b = high[i];
      low[i] = {__fmaf_rn(a.x, c.x, -__fmul_rn(b.x, s.x)),
                __fmaf_rn(a.y, c.y, -__fmul_rn(b.y, s.y))};
      high[i] = {__fmaf_rn(a.x, s.x, __fmul_rn(b.x, c.x)),
                 __fmaf_rn(a.y, s.y, __fmul_rn(b.y, c.y))};
    }
  }
  template <class T>
  __device__ void write(T* to, int half) const {
    for_each_turn(half, [&](int at, const float2* of) {
      AdjacentPairs<T, Layout::adjacent> rounded;
#pragma unroll
      for (int i = 0; i < Layout::adjacent; ++i) round_to(rounded.at[i], of[i]);
      *reinterpret_cast<AdjacentPairs<T, Layout::adjacent>*>(to + at) = rounded;
    });
  }
  /// The scale of the head's codes. All lanes of the warp call. `row`: shared memory of this warp
  /// for the head's elements, of 4-bit codes.
  template <class Code>
  __device__ __half scale_of(int half, float fixed_scale, float* row) const {
    if constexpr (Code::in_byte == 2) {
      static_assert(Layout::heads == 1);
      __syncwarp();  // what was there is read
      write(row, half);
      __syncwarp();
      return int4_scale<Layout::max_dim / 16>(row, 2 * half);
    } else {
      float largest = 0.0F;
#pragma unroll
      for (int i = 0; i < pairs; ++i) {
        largest = fmaxf(largest, fmaxf(fmaxf(fabsf(low[i].x), fabsf(low[i].y)),
                                       fmaxf(fabsf(high[i].x), fabsf(high[i].y))));
      }
#pragma unroll
      for (int lanes = Layout::lanes / 2; lanes > 0; lanes /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(~0U, largest, lanes));
      }
      return row_scale<Code>(largest, fixed_scale);
    }
  }
  template <class Code>
  __device__ void write_codes(std::uint8_t* to, __half scale, int half) const {
    const float inverse = inverse_of(scale);
    constexpr int bits = 8 / Code::in_byte;
    for_each_turn(half, [&](int at, const float2* of) {
      std::uint32_t codes = 0;
#pragma unroll
      for (int i = 0; i < Layout::adjacent; ++i) {
        const std::uint32_t first = Code::narrow(of[i].x, inverse);
        const std::uint32_t second = Code::narrow(of[i].y, inverse);
        codes |= (first | second << bits) << (2 * bits * i);
      }
      store_codes<2 * Layout::adjacent / Code::in_byte>(to + at / Code::in_byte, codes);
    });
  }

 private:
  /// body(element, pairs): where the lane's adjacent pairs of a turn and a half belong.
  template <class Body>
  __device__ __forceinline__ void for_each_turn(int half, Body&& body) const {
#pragma unroll
    for (int i = 0; i < Layout::turns; ++i) {
      if (!Layout::has(i, half)) continue;
      body(Layout::element(i), low + i * Layout::adjacent);
      body(half + Layout::element(i), high + i * Layout::adjacent);
    }
  }
  /// The sum over a head's lanes. With two sums a lane it has the bits of a sum over twice as many
  /// lanes with one each, whose last step adds neighbours: half of the lanes add up the first sums,
  /// the others the second.
  static __device__ __forceinline__ float sum_of_head(const float (&of)[Layout::adjacent]) {
    if constexpr (Layout::adjacent == 1) {
      return warp_sum(of[0]);
    } else {
      static_assert(Layout::adjacent == 2);
      constexpr int apart = Layout::lanes / 2;
      const bool has_second = (Layout::lane() & apart) != 0;
      float sum = has_second ? of[1] : of[0];
      sum += __shfl_xor_sync(~0U, has_second ? of[0] : of[1], apart);
#pragma unroll
      for (int lanes = apart / 2; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0U, sum, lanes);
      return sum + __shfl_xor_sync(~0U, sum, apart);
    }
  }
};

/// The warps of a token. Each has up to `heads` heads, all queries, all keys or all values.
struct WarpSplit {
  int heads;
  int of_queries, of_keys;  ///< warps that have these; as many have values as have keys

  WarpSplit(const StoreShape& shape, int heads)
      : heads(heads),
        of_queries(static_cast<int>(blocks_of(shape.heads, heads))),
        of_keys(static_cast<int>(blocks_of(shape.kv_heads, heads))) {}
  unsigned warps() const { return static_cast<unsigned>(of_queries + 2 * of_keys); }
};
enum class Role { query, key, value };
struct HeadsOfWarp {
  Role role;
  int first, end;  ///< among the heads of the role; none if first >= end
};
__device__ __forceinline__ HeadsOfWarp heads_of_warp(const StoreShape& shape,
                                                     const WarpSplit& split) {
  const int place = static_cast<int>(blockIdx.y * (blockDim.x / warp) + threadIdx.x / warp);
  const int key = place - split.of_queries, value = key - split.of_keys;
  const Role role = key < 0 ? Role::query : value < 0 ? Role::key : Role::value;
  const int first = split.heads * (key < 0 ? place : value < 0 ? key : value);
  return {role, first, min(first + split.heads, key < 0 ? shape.heads : shape.kv_heads)};
}

constexpr int max_warps = 8;  ///< of a block

/// A block has a token, or some warps of it. `split.heads` is a multiple of Layout::heads.
template <class T, class Keys, class Values, class Layout>
__global__ void __launch_bounds__(warp* max_warps, Layout::turns == 1 ? 4 : 2)
    store_heads(const __grid_constant__ CodedStore of, const T* qkv, T* q_out, WarpSplit split) {
  constexpr bool is_searched = Keys::in_byte == 2 || Values::in_byte == 2;
  __shared__ float rows[max_warps][is_searched ? Layout::max_dim : 1];
  float* const row = rows[threadIdx.x / warp];
  let_next_kernel_start();
  const StoreShape& shape = of.shape;
  const int half = Layout::half(shape), dim = 2 * half;
  const std::int64_t token = blockIdx.x;
  const auto [role, first, end] = heads_of_warp(shape, split);
  if (first >= end) return;
  const bool is_query = role == Role::query, is_key = role == Role::key;
  const int own = first + Layout::head();
  // Loads of what no kernel writes do not wait for earlier kernels. Positions and slots are there,
  // too: the copy that brings them (copy_small) lets no later kernel start before its end.
  const int position = of.positions[token], slot = of.slots[token];
  const float* const norm = is_query ? of.q_norm : is_key ? of.k_norm : nullptr;
  HeadNumbers<Layout> weight, angles;
  if (norm != nullptr) weight = HeadNumbers<Layout>::read(norm, half);
  if (role != Role::value) {
    angles = HeadNumbers<Layout>::read(of.rope + std::int64_t{position} * dim, half);
  }
  // The head's place: in q_out, or in its page.
  auto* to = reinterpret_cast<std::uint8_t*>(q_out + (token * shape.heads + own) * dim);
  int head_bytes = dim * static_cast<int>(sizeof(T)), row_place = 0, scale_place = 0;
  if (!is_query) {
    const int block = slot / shape.block_size, offset = slot - block * shape.block_size;
    const int key_bytes = dim / Keys::in_byte, value_bytes = dim / Values::in_byte;
    const CodedPages pages{shape.kv_heads, shape.block_size, is_key ? key_bytes : value_bytes,
                           is_key ? value_bytes : key_bytes};
    to = (is_key ? of.keys : of.values) + pages.page(block, own);
    head_bytes = static_cast<int>(pages.pitch());
    row_place = static_cast<int>(pages.row(offset));
    scale_place = static_cast<int>(pages.scale(offset));
  }
  const float fixed_scale = is_key ? of.key_scale : of.value_scale;
  const int before = is_query ? 0 : shape.heads + (is_key ? 0 : shape.kv_heads);
  const T* from = qkv + (token * (shape.heads + 2 * shape.kv_heads) + before + own) * dim;
  wait_for_kernels_before();
  HeadElements<T, Layout> next;
  if (own < end) next.read(from, half);
#pragma unroll 1
  for (int i = 0; first + i < end; i += Layout::heads) {
    const bool is_there = own + i < end;
    HeadNumbers<Layout> numbers(next);
    from += Layout::heads * dim;
    if (own + i + Layout::heads < end) next.read(from, half);
    if (norm != nullptr) numbers.normalise(weight, half, shape.eps);
    if (role != Role::value) numbers.rotate(angles);
    const auto write_codes = [&](auto* code) {
      using Code = element<decltype(code)>;
      const __half scale = numbers.template scale_of<Code>(half, fixed_scale, row);
      if (!is_there) return;
      if (Layout::lane() == 0) *reinterpret_cast<__half*>(to + scale_place) = scale;
      numbers.template write_codes<Code>(to + row_place, scale, half);
    };
    if (is_query) {
      if (is_there) numbers.write(reinterpret_cast<T*>(to), half);
    } else if (is_key || std::is_same_v<Keys, Values>) {
      write_codes(static_cast<Keys*>(nullptr));
    } else {
      write_codes(static_cast<Values*>(nullptr));
    }
    to += Layout::heads * head_bytes;
  }
}

const float* floats_of(const Tensor& tensor) {
  return tensor.empty() ? nullptr : tensor.as<float>();
}

template <class T, class Keys, class Values, class Layout>
cudaError_t launch(const CodedStore& of, const Tensor& qkv, const Tensor& q_out,
                   cudaStream_t stream) {
  // Several heads of a warp share what it loads of a token, but wait for each other: they are for
  // passes with more warps than these: of half warps 24 a multiprocessor of an H200, of whole ones
  // those of 512 tokens of 48 heads. As measured there.
  constexpr std::int64_t few_warps = Layout::heads == 1 ? 24576 : 3168;
  int rounds = 1;
  while (rounds < 4 && qkv[0] * WarpSplit(of.shape, rounds * Layout::heads).warps() > few_warps) {
    rounds *= 2;
  }
  const WarpSplit split(of.shape, rounds * Layout::heads);
  const unsigned blocks = blocks_of(split.warps(), max_warps);
  const Grid grid{dim3(static_cast<unsigned>(qkv[0]), blocks),
                  warp * blocks_of(split.warps(), blocks)};
  return launch_early(store_heads<T, Keys, Values, Layout>, grid, stream, of,
                      static_cast<const T*>(qkv.data()), static_cast<T*>(q_out.data()), split);
}

template <class T, class Keys, class Values>
cudaError_t launch(const CodedStore& of, const Tensor& qkv, const Tensor& q_out,
                   cudaStream_t stream) {
  if constexpr (std::is_same_v<T, bf16> && Keys::in_byte == 1 && Values::in_byte == 1) {
    // Four codes are stored at once: pages have scales of two bytes behind their rows.
    if (of.shape.head_dim == HalfWarpPerHead::max_dim && of.shape.block_size % 2 == 0) {
      return launch<T, Keys, Values, HalfWarpPerHead>(of, qkv, q_out, stream);
    }
  }
  return of.shape.head_dim <= WarpPerHead<1>::max_dim
             ? launch<T, Keys, Values, WarpPerHead<1>>(of, qkv, q_out, stream)
             : launch<T, Keys, Values, WarpPerHead<2>>(of, qkv, q_out, stream);
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
