// How heads of codes are spread over the lanes of a warp, for attention by tensor cores in fp16,
// which holds codes exactly: positions are rows of an instruction, query heads its 8 columns.
// Ranges of fp16 are kept by powers of two for queries, and for the terms of values by the maximum
// to which they are relative.
#pragma once

#include <cstdint>

#include "models/ops/cuda/attention/kv_code.cuh"
#include "models/ops/cuda/common/mma_m16n8k16.cuh"
#include "parallel/device/cuda/device_math.cuh"

namespace troupe::cuda {

/// A lane's share of a row of `bytes` that `lanes` lanes have: 16 adjacent bytes of each 16 *
/// lanes, then 8, 4, 2 and 1 of what is left.
template <int bytes, int lanes>
struct CodeShare {
  static_assert(bytes % lanes == 0);
  static constexpr int units = bytes / (16 * lanes);
  static constexpr int of_lane = bytes / lanes, rest = of_lane % 16;  ///< bytes; behind the units
  static constexpr int words = (of_lane + 3) / 4;                     ///< that hold them

  /// The place in the row of the i-th byte of a lane.
  __host__ __device__ static constexpr int place(int i, int lane) {
    if (i < 16 * units) return 16 * (lanes * (i / 16) + lane) + i % 16;
    int first = 16 * lanes * units;
    i -= 16 * units;
    for (int part = 8; part > 0; part /= 2) {
      if ((rest & part) == 0) continue;
      if (i < part) return first + part * lane + i;
      first += part * lanes;
      i -= part;
    }
    return first;
  }
  /// Each byte of a row is one lane's.
  static constexpr bool has_all() {
    bool found[bytes] = {};
    for (int lane = 0; lane < lanes; ++lane) {
      for (int i = 0; i < of_lane; ++i) found[place(i, lane)] = true;
    }
    for (const bool is_there : found) {
      if (!is_there) return false;
    }
    return true;
  }
};

/// A lane's part of the codes of a row in shared memory, whose address is a multiple of the largest
/// load.
template <int bytes, int lanes>
struct CodesOfRow {
  using Share = CodeShare<bytes, lanes>;
  static_assert(Share::has_all());

  std::uint32_t words[Share::words];

  __device__ __forceinline__ void read(const unsigned char* row, int lane) {
    constexpr int eight = 16 * Share::units, four = eight + (Share::rest & 8),
                  two = four + (Share::rest & 4), one = two + (Share::rest & 2);
    const auto at = [&](int i) { return row + Share::place(i, lane); };
#pragma unroll
    for (int u = 0; u < Share::units; ++u) {
      const uint4 unit = *reinterpret_cast<const uint4*>(at(16 * u));
      words[4 * u] = unit.x;
      words[4 * u + 1] = unit.y;
      words[4 * u + 2] = unit.z;
      words[4 * u + 3] = unit.w;
    }
    if constexpr (four > eight) {
      const uint2 pair = *reinterpret_cast<const uint2*>(at(eight));
      words[eight / 4] = pair.x;
      words[eight / 4 + 1] = pair.y;
    }
    if constexpr (two > four) {
      words[four / 4] = *reinterpret_cast<const std::uint32_t*>(at(four));
    }
    if constexpr (Share::of_lane > two) {
      std::uint32_t last = 0;
      if constexpr (one > two) last = *reinterpret_cast<const std::uint16_t*>(at(two));
      if constexpr (Share::of_lane > one) last |= std::uint32_t{*at(one)} << (8 * (one - two));
      words[two / 4] = last;
    }
  }
};

/// A lane's part of a query of `dim` elements, a multiple of 16, in fp16, as it has keys of Code:
/// `fourth` is lane % 4. Instruction i takes four adjacent elements of each lane.
template <class Code, int dim>
struct CodedQuery {
  using Share = CodeShare<dim / Code::in_byte, 4>;
  static constexpr int instructions = dim / 16;

  std::uint32_t low[instructions] = {}, high[instructions] = {};
  float unit = 1.0F;  ///< a power of two: elements are times this

  /// The first of an instruction's elements.
  __device__ static constexpr int element(int instruction, int fourth) {
    return Code::in_byte * Share::place(4 * instruction / Code::in_byte, fourth);
  }
  /// All lanes of the warp call; those without a query pass null.
  __device__ __forceinline__ void read(const bf16* row, int fourth) {
    float elements[instructions][4] = {};
    float largest = 0.0F;
#pragma unroll
    for (int i = 0; i < instructions; ++i) {
      if (row == nullptr) break;
      const uint2 four = *reinterpret_cast<const uint2*>(row + element(i, fourth));
      const float2 a = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&four.x));
      const float2 b = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&four.y));
      elements[i][0] = a.x;
      elements[i][1] = a.y;
      elements[i][2] = b.x;
      elements[i][3] = b.y;
#pragma unroll
      for (const float element : elements[i]) largest = fmaxf(largest, fabsf(element));
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
    for (int i = 0; i < instructions; ++i) {
      low[i] = pair_of(elements[i][0] * factor, elements[i][1] * factor);
      high[i] = pair_of(elements[i][2] * factor, elements[i][3] * factor);
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
                                                  const CodedQuery<Code, dim> (&query)[tiles],
                                                  float (&scores)[tiles][4]) {
  CodesOfRow<dim / Code::in_byte, 4> a, b;
  a.read(top, fourth);
  b.read(bottom, fourth);
#pragma unroll
  for (int i = 0; i < CodedQuery<Code, dim>::instructions; ++i) {
    std::uint32_t top_low, top_high, bottom_low, bottom_high;
    Code::widen(four_codes<Code>(a.words, i), top_low, top_high);
    Code::widen(four_codes<Code>(b.words, i), bottom_low, bottom_high);
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      mma_f16(scores[t], top_low, bottom_low, top_high, bottom_high, query[t].low[i],
              query[t].high[i]);
    }
  }
}

/// How OnlineSoftmax::sums has the elements of values: two rows of an instruction are adjacent
/// elements of a lane.
template <class Code, int dim>
struct CodedValueLanes {
  using Share = CodeShare<dim / Code::in_byte, 8>;
  static constexpr int fragments = dim / 16;

  __device__ static constexpr int element(int fragment, int eighth) {
    return Code::in_byte * Share::place(2 * fragment / Code::in_byte, eighth);
  }
};

/// The numbers of a word of codes at two positions, in pairs of these: those of even elements, and
/// of odd ones.
template <class Code>
struct WordOfTwo {
  static constexpr int elements = 4 * Code::in_byte;

  std::uint32_t even[elements / 2], odd[elements / 2];

  __device__ __forceinline__ WordOfTwo(std::uint32_t a, std::uint32_t b) {
    if constexpr (Code::in_byte == 1) {
      Code::widen(__byte_perm(a, b, 0x5140), even[0], odd[0]);
      Code::widen(__byte_perm(a, b, 0x7362), even[1], odd[1]);
    } else {
      constexpr std::uint32_t lower = 0x0F0F0F0F;
      const std::uint32_t evens = (a & lower) | (b << 4 & ~lower);
      const std::uint32_t odds = (a >> 4 & lower) | (b & ~lower);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Code::widen(evens >> (16 * half), even[2 * half], even[2 * half + 1]);
        Code::widen(odds >> (16 * half), odd[2 * half], odd[2 * half + 1]);
      }
    }
  }
};

/// The lane's part of the values of 16 positions: of 2 (lane % 4) + i % 2 + 8 (i / 2) for i from 0.
template <class Code, int dim>
struct CodedValues {
  using Share = CodeShare<dim / Code::in_byte, 8>;

  CodesOfRow<dim / Code::in_byte, 8> of[4];

  /// row(i) is the row of position i.
  template <class Row>
  __device__ __forceinline__ void read(int eighth, const Row& row) {
#pragma unroll
    for (int i = 0; i < 4; ++i) of[i].read(row(i), eighth);
  }
  /// Adds to the sums of all tiles.
  template <int tiles, class Terms, class Softmax>
  __device__ __forceinline__ void add(const Terms (&terms)[tiles],
                                      Softmax (&softmax)[tiles]) const {
    constexpr int fragments = CodedValueLanes<Code, dim>::fragments;
    constexpr int of_word = WordOfTwo<Code>::elements / 2;
#pragma unroll
    for (int w = 0; w < Share::words; ++w) {
      const WordOfTwo<Code> low(of[0].words[w], of[1].words[w]);
      const WordOfTwo<Code> high(of[2].words[w], of[3].words[w]);
#pragma unroll
      for (int i = 0; i < of_word && w * of_word + i < fragments; ++i) {
#pragma unroll
        for (int t = 0; t < tiles; ++t) {
          mma_f16(softmax[t].sums[w * of_word + i], low.even[i], low.odd[i], high.even[i],
                  high.odd[i], terms[t].low, terms[t].high);
        }
      }
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
