// Some threads of a block that make the codes of a part of a row (quantize_row.cuh).
#pragma once

#include "models/ops/cuda/gemm/quantize_row.cuh"

namespace troupe::cuda {

/// Units of a part that a thread makes the codes of.
constexpr unsigned max_part_units = 8;

/// Units [first, first + units) of a row of bf16 that has `row_units` units; zeros follow them up
/// to `padded_units`.
struct RowPart {
  const bf16* row;
  unsigned row_units, padded_units;
  unsigned first, units;
};

/// Makes each pair of `largest` the larger of itself and the magnitudes of the unit's pair at its
/// place; NaN is above all.
__device__ __forceinline__ void raise_magnitudes(__nv_bfloat162 (&largest)[unit / 2],
                                                 const uint4& values) {
  const auto* const pairs = reinterpret_cast<const __nv_bfloat162*>(&values);
#pragma unroll
  for (int i = 0; i < unit / 2; ++i) largest[i] = __hmax2_nan(largest[i], __habs2(pairs[i]));
}

/// Makes the codes of a part, those of its unit i at place(i), with the scale of the whole row,
/// which it returns: the bits are those of quantize_row. Called by the first `threads` threads of a
/// block, once in a kernel; they alone meet at barrier 1. Readers first meet all of them, products
/// after show_to_products. A thread keeps at most `kept_units` units of the row.
template <CodeKind kind, int threads, unsigned kept_units, class Place>
__device__ __forceinline__ float quantize_part(const RowPart& part, const Place& place) {
  constexpr unsigned own_units = kept_units < max_part_units ? kept_units : max_part_units;
  // All loads are under way at once: of the part, then of what follows, then of what precedes.
  const auto* const row = reinterpret_cast<const uint4*>(part.row);
  uint4 kept[kept_units] = {};
#pragma unroll
  for (unsigned i = 0; i < kept_units; ++i) {
    const unsigned at = part.first + threadIdx.x + i * threads;
    const unsigned from = at < part.padded_units ? at : at - part.padded_units;
    if (from < part.row_units) kept[i] = row[from];
  }
  __nv_bfloat162 pairs[unit / 2] = {};
#pragma unroll
  for (const uint4& values : kept) raise_magnitudes(pairs, values);
  const __nv_bfloat162 pair =
      __hmax2_nan(__hmax2_nan(pairs[0], pairs[1]), __hmax2_nan(pairs[2], pairs[3]));
  // Magnitudes are ordered as their bits are, with NaN above infinity.
  const unsigned bits =
      max(__float_as_uint(__low2float(pair)), __float_as_uint(__high2float(pair)));
  __shared__ unsigned warp_bits[threads / 32];
  warp_bits[threadIdx.x / 32] = __reduce_max_sync(~0U, bits);
  asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory");
  unsigned most = 0;
#pragma unroll
  for (const unsigned of_warp : warp_bits) most = max(most, of_warp);
  const float largest = __uint_as_float(min(most, __float_as_uint(INFINITY)));
  const float scale = scale_of(largest, kind), factor = 1.0F / scale;
#pragma unroll
  for (unsigned i = 0; i < own_units; ++i) {
    if (threadIdx.x + i * threads >= part.units) break;
    float values[unit];
    load_unit(reinterpret_cast<const bf16*>(&kept[i]), values);
    store_codes(place(threadIdx.x + i * threads), values, factor, kind);
  }
  return isfinite(largest) ? scale : NAN;
}

}  // namespace troupe::cuda
