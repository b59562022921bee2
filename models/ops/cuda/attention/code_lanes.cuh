// How heads of codes of 8 bits are spread over the lanes of a warp, for attention by tensor cores
// in fp16, which holds codes exactly: positions are rows of an instruction, query heads its 8
// columns. Ranges of fp16 are kept by powers of two for queries, and for the terms of values by the
// maximum to which they are relative.
#pragma once

#include <cstdint>

#include "models/ops/cuda/attention/kv_code.cuh"
#include "models/ops/cuda/common/mma_m16n8k16.cuh"
#include "parallel/device/cuda/device_math.cuh"

namespace troupe::cuda {

/// What a lane has of a head of `dim` elements that `lanes` lanes share: of each 16 * lanes
/// elements 16 adjacent ones, of what is left 8, 4 and 2, as words of four codes and at last
/// perhaps half a word.
template <int dim, int lanes>
struct CodeShare {
  static_assert(dim % (2 * lanes) == 0);
  static constexpr int units = dim / (16 * lanes);
  static constexpr int rest = dim % (16 * lanes) / lanes;  ///< elements behind the units
  static constexpr int words = dim / lanes / 4;
  static constexpr bool has_half_word = rest % 4 != 0;

  /// The first element of a word, or of the half word behind the last.
  __host__ __device__ static constexpr int element(int word, int lane) {
    if (word < 4 * units) return 16 * (lanes * (word / 4) + lane) + 4 * (word % 4);
    int first = 16 * lanes * units, index = word - 4 * units;
    if (rest >= 8) {
      if (index < 2) return first + 8 * lane + 4 * index;
      first += 8 * lanes;
      index -= 2;
    }
    if (rest % 8 >= 4) {
      if (index == 0) return first + 4 * lane;
      first += 4 * lanes;
    }
    return first + 2 * lane;
  }
};

/// A lane's part of the codes of a row in shared memory.
template <int dim, int lanes>
struct CodesOfRow {
  using Share = CodeShare<dim, lanes>;

  std::uint32_t words[Share::words + (Share::has_half_word ? 1 : 0)];

  __device__ __forceinline__ void read(const unsigned char* row, int lane) {
#pragma unroll
    for (int u = 0; u < Share::units; ++u) {
      const uint4 unit = *reinterpret_cast<const uint4*>(row + Share::element(4 * u, lane));
      words[4 * u] = unit.x;
      words[4 * u + 1] = unit.y;
      words[4 * u + 2] = unit.z;
      words[4 * u + 3] = unit.w;
    }
    constexpr int behind = 4 * Share::units;
    if constexpr (Share::rest >= 8) {
      const uint2 pair = *reinterpret_cast<const uint2*>(row + Share::element(behind, lane));
      words[behind] = pair.x;
      words[behind + 1] = pair.y;
    }
    if constexpr (Share::rest % 8 >= 4) {
      constexpr int last = Share::words - 1;
      words[last] = *reinterpret_cast<const std::uint32_t*>(row + Share::element(last, lane));
    }
    if constexpr (Share::has_half_word) {
      words[Share::words] =
          *reinterpret_cast<const std::uint16_t*>(row + Share::element(Share::words, lane));
    }
  }
};

/// A lane's part of a query of `dim` elements, a multiple of 16, in fp16: `fourth` is lane % 4.
template <int dim>
struct CodedQuery {
  using Share = CodeShare<dim, 4>;
  static_assert(!Share::has_half_word);

  std::uint32_t low[Share::words] = {}, high[Share::words] = {};
  float unit = 1.0F;  ///< a power of two: elements are times this

  /// All lanes of the warp call; those without a query pass null.
  __device__ __forceinline__ void read(const bf16* row, int fourth) {
    float elements[Share::words][4] = {};
    float largest = 0.0F;
#pragma unroll
    for (int w = 0; w < Share::words; ++w) {
      if (row == nullptr) break;
      const uint2 four = *reinterpret_cast<const uint2*>(row + Share::element(w, fourth));
      const float2 a = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&four.x));
      const float2 b = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&four.y));
      elements[w][0] = a.x;
      elements[w][1] = a.y;
      elements[w][2] = b.x;
      elements[w][3] = b.y;
#pragma unroll
      for (const float element : elements[w]) largest = fmaxf(largest, fabsf(element));
    }
    largest = fmaxf(largest, __shfl_xor_sync(~0U, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(~0U, largest, 2));
    // The largest becomes 2^14 or a little more, of fp16's 65,504.
    constexpr int aim = 14, most = 100;
    const int exponent =
        static_cast<int>(__float_as_uint(largest) >> 23) - 127;  // -127: no number above 0
    const int moved = max(min(exponent - aim, most), -most);
    unit = __uint_as_float(static_cast<std::uint32_t>(127 + moved) << 23);
    const float factor = __uint_as_float(static_cast<std::uint32_t>(127 - moved) << 23);
#pragma unroll
    for (int w = 0; w < Share::words; ++w) {
      low[w] = pair_of(elements[w][0] * factor, elements[w][1] * factor);
      high[w] = pair_of(elements[w][2] * factor, elements[w][3] * factor);
    }
  }
  static __device__ __forceinline__ std::uint32_t pair_of(float left, float right) {
    const __half2 pair = __floats2half2_rn(left, right);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  }
};

/// Adds the products of 16 keys with 8 queries for each tile: `top` and `bottom` are the rows of
/// keys lane / 4 and lane / 4 + 8.
template <class Code, int dim, int tiles>
__device__ __forceinline__ void add_code_products(const unsigned char* top,
                                                  const unsigned char* bottom, int fourth,
                                                  const CodedQuery<dim> (&query)[tiles],
                                                  float (&scores)[tiles][4]) {
  CodesOfRow<dim, 4> a, b;
  a.read(top, fourth);
  b.read(bottom, fourth);
#pragma unroll
  for (int w = 0; w < CodeShare<dim, 4>::words; ++w) {
    std::uint32_t top_low, top_high, bottom_low, bottom_high;
    Code::widen(a.words[w], top_low, top_high);
    Code::widen(b.words[w], bottom_low, bottom_high);
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      mma_f16(scores[t], top_low, bottom_low, top_high, bottom_high, query[t].low[w],
              query[t].high[w]);
    }
  }
}

/// How OnlineSoftmax::sums has the elements of values: two rows of an instruction are adjacent
/// elements of a lane.
template <int dim>
struct CodedValueLanes {
  using Share = CodeShare<dim, 8>;
  static constexpr int fragments = dim / 16;

  __device__ static constexpr int element(int fragment, int eighth) {
    return Share::element(fragment / 2, eighth) + 2 * (fragment % 2);
  }
};

/// The lane's part of the values of 16 positions: of 2 (lane % 4) + i % 2 + 8 (i / 2) for i from 0.
template <int dim>
struct CodedValues {
  using Share = CodeShare<dim, 8>;

  CodesOfRow<dim, 8> of[4];

  /// row(i) is the row of position i.
  template <class Row>
  __device__ __forceinline__ void read(int eighth, const Row& row) {
#pragma unroll
    for (int i = 0; i < 4; ++i) of[i].read(row(i), eighth);
  }
  /// Adds to the sums of all tiles.
  template <class Code, int tiles, class Terms, class Softmax>
  __device__ __forceinline__ void add(const Terms (&terms)[tiles],
                                      Softmax (&softmax)[tiles]) const {
#pragma unroll
    for (int w = 0; w < Share::words; ++w) {
      add_pair<Code>(2 * w, w, 0x5140, terms, softmax);
      add_pair<Code>(2 * w + 1, w, 0x7362, terms, softmax);
    }
    if constexpr (Share::has_half_word) {
      add_pair<Code>(2 * Share::words, Share::words, 0x5140, terms, softmax);
    }
  }

 private:
  /// `which` two codes of a word: of the first position, of the second, and the next ones of both.
  template <class Code, int tiles, class Terms, class Softmax>
  __device__ __forceinline__ void add_pair(int fragment, int word, unsigned which,
                                           const Terms (&terms)[tiles],
                                           Softmax (&softmax)[tiles]) const {
    std::uint32_t top_low, bottom_low, top_high, bottom_high;
    Code::widen(__byte_perm(of[0].words[word], of[1].words[word], which), top_low, bottom_low);
    Code::widen(__byte_perm(of[2].words[word], of[3].words[word], which), top_high, bottom_high);
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      mma_f16(softmax[t].sums[fragment], top_low, bottom_low, top_high, bottom_high, terms[t].low,
              terms[t].high);
    }
  }
};

/// The terms of 16 positions, at most 1, as the right operand of the product with values.
struct CodedTerms {
  std::uint32_t low, high;

  __device__ __forceinline__ explicit CodedTerms(const float (&of)[4])
      : low(transposed_half(of[0], of[1])), high(transposed_half(of[2], of[3])) {}

 private:
  static __device__ __forceinline__ std::uint32_t transposed_half(float left, float right) {
    const __half2 pair = __floats2half2_rn(left, right);
    std::uint32_t value = *reinterpret_cast<const std::uint32_t*>(&pair);
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(value));
    return value;
  }
};

}  // namespace troupe::cuda
