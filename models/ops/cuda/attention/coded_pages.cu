#include "models/ops/cuda/attention/coded_pages.hpp"
#include "models/ops/cuda/attention/kv_code.cuh"
#include "parallel/device/cuda/device_math.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr int threads = 128, unit = 16;  // codes that a thread loads at once

struct Widening {
  const std::uint8_t* from[2];  ///< keys, values
  bf16* to[2];
  const std::int32_t* table;
  const std::int32_t* places;  ///< or null
  int kv_heads, block_size, head_dim, first_head;
  bool by_head;
};

/// Loaded at once.
template <class Code>
struct __align__(unit / Code::in_byte) CodeUnit {
  std::uint32_t words[unit / Code::in_byte / 4];
};

/// Two numbers in bf16.
__device__ __forceinline__ std::uint32_t scaled(std::uint32_t pair, float scale) {
  const float2 numbers = __half22float2(*reinterpret_cast<const __half2*>(&pair));
  return round_pair(numbers.x * scale, numbers.y * scale);
}

/// Widens the page of the block's place and KV head: of keys (0) or of values (1).
template <class Code, class Other>
__device__ __forceinline__ void widen_page(const Widening& of, int which) {
  const CodedPages pages{of.kv_heads, of.block_size, of.head_dim / Code::in_byte,
                         of.head_dim / Other::in_byte};
  const int index = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const std::int32_t place = of.places == nullptr ? index : of.places[index];
  const std::uint8_t* const page =
      of.from[which] + pages.page(of.table[place], of.first_head + head);
  const int elements = of.block_size * of.head_dim;
  const std::int64_t to_page =
      of.by_head ? std::int64_t{head} * gridDim.x + index : std::int64_t{index} * gridDim.y + head;
  bf16* const to = of.to[which] + to_page * elements;
  for (int i = static_cast<int>(threadIdx.x) * unit; i < elements; i += threads * unit) {
    const auto codes = *reinterpret_cast<const CodeUnit<Code>*>(page + i / Code::in_byte);
    const auto* const scale = page + pages.scale(i / of.head_dim);
    const float factor = __half2float(*reinterpret_cast<const __half*>(scale)) * Code::unit;
    std::uint32_t numbers[8];
#pragma unroll
    for (int four = 0; four < 4; ++four) {
      std::uint32_t first, second;
      Code::widen(four_codes<Code>(codes.words, four), first, second);
      numbers[2 * four] = scaled(first, factor);
      numbers[2 * four + 1] = scaled(second, factor);
    }
    auto* const units = reinterpret_cast<uint4*>(to + i);
    units[0] = {numbers[0], numbers[1], numbers[2], numbers[3]};
    units[1] = {numbers[4], numbers[5], numbers[6], numbers[7]};
  }
}

/// A block widens a page of a KV head: keys (blockIdx.z 0) or values.
template <class Keys, class Values>
__global__ void __launch_bounds__(threads) widen(const __grid_constant__ Widening of) {
  if (blockIdx.z == 0) {
    widen_page<Keys, Values>(of, 0);
  } else {
    widen_page<Values, Keys>(of, 1);
  }
}

}  // namespace
}  // namespace cuda

using namespace cuda;

cudaError_t widen_pages(const CodedSource& source, const WidenedPages& what, __nv_bfloat16* keys,
                        __nv_bfloat16* values, cudaStream_t stream) {
  const Widening of{.from = {static_cast<const std::uint8_t*>(source.cache.keys.data()),
                             static_cast<const std::uint8_t*>(source.cache.values.data())},
                    .to = {keys, values},
                    .table = source.table,
                    .places = source.places,
                    .kv_heads = static_cast<int>(source.kv_heads),
                    .block_size = static_cast<int>(source.block_size),
                    .head_dim = static_cast<int>(source.head_dim),
                    .first_head = static_cast<int>(what.heads.begin),
                    .by_head = what.by_head};
  const dim3 grid(static_cast<unsigned>(what.pages), static_cast<unsigned>(what.heads.count), 2);
  with_codes(source.cache.keys.dtype(), source.cache.values.dtype(),
             [&](auto* keys_code, auto* values_code) {
               widen<element<decltype(keys_code)>, element<decltype(values_code)>>
                   <<<grid, threads, 0, stream>>>(of);
             });
  return cudaPeekAtLastError();
}

}  // namespace troupe
