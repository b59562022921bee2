// Shared by sums over ranks: words of several elements, widened, added in tree order, narrowed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>

#include "parallel/collectives/peer/peer_sums.hpp"

namespace troupe::sums {

using bf16 = __nv_bfloat16;

constexpr int threads = 256;

template <class T, int count>
struct alignas(sizeof(T) * count) Words {
  T of[count];
};

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void narrow(float x, float& to) { to = x; }
__device__ __forceinline__ void narrow(float x, bf16& to) { to = __float2bfloat16_rn(x); }

/// The largest power of two below `terms`, of at least 2.
template <int terms>
struct LeftOf {
  static constexpr int value = terms > 4 ? 4 : terms > 2 ? 2 : 1;
  static_assert(terms <= max_peer_ranks && max_peer_ranks <= 8);
};

/// The sum of terms[begin, begin + count) in the order of tree_sum.hpp.
template <int begin, int count>
__device__ __forceinline__ float tree(const float* terms) {
  if constexpr (count == 1) {
    return terms[begin];
  } else {
    constexpr int left = LeftOf<count>::value;
    return tree<begin, left>(terms) + tree<begin + left, count - left>(terms);
  }
}

/// Adds the ranks' words, element by element.
template <int ranks, class T, class Out, int count>
__device__ __forceinline__ void add_words(const Words<T, count> (&parts)[ranks],
                                          Words<Out, count>& sum) {
#pragma unroll
  for (int i = 0; i < count; ++i) {
    float terms[ranks];
#pragma unroll
    for (int rank = 0; rank < ranks; ++rank) terms[rank] = widen(parts[rank].of[i]);
    narrow(tree<0, ranks>(terms), sum.of[i]);
  }
}

/// body(integral_constant of ranks)
template <class Body>
void with_ranks(int ranks, Body&& body) {
  switch (ranks) {
    case 1:
      return body(std::integral_constant<int, 1>());
    case 2:
      return body(std::integral_constant<int, 2>());
    case 3:
      return body(std::integral_constant<int, 3>());
    case 4:
      return body(std::integral_constant<int, 4>());
    case 5:
      return body(std::integral_constant<int, 5>());
    case 6:
      return body(std::integral_constant<int, 6>());
    case 7:
      return body(std::integral_constant<int, 7>());
    default:
      return body(std::integral_constant<int, 8>());
  }
}

/// body(integral_constant of ranks, an element of the parts, an element of the sum)
template <class Body>
void with_types(int ranks, DType part, DType sum, Body&& body) {
  with_ranks(ranks, [&](auto count) {
    if (part == DType::f32) {
      body(count, float(), float());
    } else if (sum == DType::f32) {
      body(count, bf16(), float());
    } else {
      body(count, bf16(), bf16());
    }
  });
}

inline int blocks_of(std::int64_t words, std::int64_t most) {
  return static_cast<int>(std::clamp<std::int64_t>((words + threads - 1) / threads, 1, most));
}

inline bool is_aligned(const void* memory, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(memory) % bytes == 0;
}

}  // namespace troupe::sums
