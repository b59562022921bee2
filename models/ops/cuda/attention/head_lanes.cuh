// How the elements of heads of any multiple of 16 are spread over the lanes of a warp, for
// attention by tensor cores: positions are rows of an instruction, query heads its 8 columns.
#pragma once

#include <cstdint>

#include "models/ops/cuda/attention/decode_lanes.cuh"
#include "models/ops/cuda/common/mma_m16n8k16.cuh"
#include "models/ops/cuda/common/transposed.cuh"

namespace troupe::cuda {

/// How the elements of a head are spread over a warp's lanes. Of a key, each of four lanes reads
/// two units of 16 bytes of every 64 elements (or one of every 32, and 8 bytes of what is left); of
/// a value, each of eight lanes 16 bytes of every 64 elements, and 4 of every 16 that are left.
template <int dim>
struct HeadLanes {
  static_assert(dim % 16 == 0 && dim >= 64);
  static constexpr int chunks = dim / 32;
  static constexpr bool has_half_chunk = dim % 32 != 0;
  static constexpr int units = dim / 64, words = dim % 64 / 16;
  static constexpr int row_units = dim / 8;  // of 16 bytes
  static constexpr int fragments = dim / 16;
  static constexpr int value_steps = (fragments + 3) / 4;  // calls of ValueRows::read

  /// The j-th unit of a key that lane % 4 = `fourth` reads.
  __device__ static constexpr int key_unit(int j, int fourth) {
    return dim % 64 == 0 ? 8 * (j / 2) + 2 * fourth + j % 2 : 4 * j + fourth;
  }

  /// The first of the two elements that lane / 4 = `eighth` has of a fragment of values.
  __device__ static constexpr int element(int fragment, int eighth) {
    return fragment < 4 * units ? 64 * (fragment / 4) + 8 * eighth + 2 * (fragment % 4)
                                : 16 * fragment + 2 * eighth;
  }
};

/// A row among `page` rows in shared memory, where the copy engine has put the first 64 elements of
/// each, then the next, and has permuted the units of 128 bytes as in tile_descriptor. Eight lanes
/// read at a time: of keys every other unit of two adjacent rows (key_unit), of values two adjacent
/// units of every other of eight rows. So they lie in different banks.
template <int page>
struct SwizzledRow {
  const uint4* page_begin;
  int row;

  __device__ const uint4& operator[](int unit) const {
    return page_begin[(unit / 8 * page + row) * 8 + (unit % 8 ^ row % 8)];
  }
};

/// The lane's part of a key or a query: `fourth` is lane % 4.
template <int dim>
struct KeyRow {
  using Lanes = HeadLanes<dim>;

  uint4 chunks[Lanes::chunks] = {};
  uint2 half_chunk = {};

  __device__ void read(const void* row, int fourth) {
#pragma unroll
    for (int j = 0; j < Lanes::chunks; ++j) {
      chunks[j] = static_cast<const uint4*>(row)[Lanes::key_unit(j, fourth)];
    }
    if constexpr (Lanes::has_half_chunk) {
      half_chunk = static_cast<const uint2*>(row)[8 * Lanes::chunks + fourth];
    }
  }
};

/// The lane's part of the values of 16 positions: of 2 (lane % 4) + i % 2 + 8 (i / 2) for i from 0.
template <int dim>
struct ValueRows {
  using Lanes = HeadLanes<dim>;

  uint4 units[Lanes::units][4];
  std::uint32_t words[Lanes::words + 1][4];

  /// Reads what fragments [4 c, 4 c + 4) have, or less at the end; row(i) is the row of position i.
  template <class Row>
  __device__ void read(int c, int eighth, const Row& row) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (c < Lanes::units) {
        units[c][i] = row(i)[eighth + 8 * c];
        continue;
      }
      if constexpr (Lanes::words > 0) {
        const auto* const from = reinterpret_cast<const std::uint32_t*>(row(i));
#pragma unroll
        for (int t = 0; t < Lanes::words; ++t) {
          words[t][i] = from[32 * Lanes::units + 8 * t + eighth];
        }
      }
    }
  }
  /// Two elements of position i.
  __device__ std::uint32_t pair(int fragment, int i) const {
    if (fragment >= 4 * Lanes::units) return words[fragment - 4 * Lanes::units][i];
    const uint4& unit = units[fragment / 4][i];
    const int word = fragment % 4;
    return word == 0 ? unit.x : word == 1 ? unit.y : word == 2 ? unit.z : unit.w;
  }
};

/// Adds the products of 16 keys with 8 queries for each tile: `top` and `bottom` are the rows of
/// keys lane / 4 and lane / 4 + 8.
template <int dim, int tiles, class Row>
__device__ __forceinline__ void add_products(const Row& top, const Row& bottom, int fourth,
                                             const KeyRow<dim> (&query)[tiles],
                                             float (&scores)[tiles][4]) {
  using Lanes = HeadLanes<dim>;
#pragma unroll
  for (int j = 0; j < Lanes::chunks; ++j) {
    const int unit = Lanes::key_unit(j, fourth);
    const uint4 a = top[unit], b = bottom[unit];
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      const uint4& q = query[t].chunks[j];
      mma(scores[t], a.x, b.x, a.y, b.y, q.x, q.y);
      mma(scores[t], a.z, b.z, a.w, b.w, q.z, q.w);
    }
  }
  if constexpr (Lanes::has_half_chunk) {
    constexpr int behind_chunks = 8 * Lanes::chunks;
    const uint2 a = reinterpret_cast<const uint2*>(top)[behind_chunks + fourth];
    const uint2 b = reinterpret_cast<const uint2*>(bottom)[behind_chunks + fourth];
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      mma(scores[t], a.x, b.x, a.y, b.y, query[t].half_chunk.x, query[t].half_chunk.y);
    }
  }
}

/// The terms of 16 positions as the right operand of the product with values.
struct Terms {
  std::uint32_t low, high;

  __device__ explicit Terms(const float (&of)[4])
      : low(transposed(of[0], of[1])), high(transposed(of[2], of[3])) {}
};

/// Adds to fragments [4 c, 4 c + 4), or less at the end, of all tiles.
template <int dim, int tiles, class Softmax>
__device__ __forceinline__ void add_values(int c, const ValueRows<dim>& values,
                                           const Terms (&terms)[tiles], Softmax (&softmax)[tiles]) {
  constexpr unsigned even = 0x5410, odd = 0x7632;
#pragma unroll
  for (int f = 4 * c; f < 4 * c + 4; ++f) {
    if (f >= HeadLanes<dim>::fragments) break;
    const std::uint32_t first = values.pair(f, 0), second = values.pair(f, 1),
                        third = values.pair(f, 2), last = values.pair(f, 3);
    const std::uint32_t a = __byte_perm(first, second, even), b = __byte_perm(first, second, odd),
                        d = __byte_perm(third, last, even), e = __byte_perm(third, last, odd);
#pragma unroll
    for (int t = 0; t < tiles; ++t)
      mma(softmax[t].sums[f], a, b, d, e, terms[t].low, terms[t].high);
  }
}

/// cap * tanh(score / cap) of scores and caps that are times log2(e). A `scaled` score is also
/// times 2 / cap; without a cap (0) it is the score.
__device__ __forceinline__ float capped_score(float scaled, float soft_cap) {
  if (soft_cap == 0.0F) return scaled;
  const float inverse = __fdividef(2.0F, __fadd_rn(exp2f(scaled), 1.0F));
  return __fmul_rn(soft_cap, __fsub_rn(1.0F, inverse));
}

}  // namespace troupe::cuda
