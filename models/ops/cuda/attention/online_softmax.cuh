// The online softmax of a warp (FlashAttention, Dao et al., 2022, section 3.1), and how the sums of
// warps and of parts of a row are combined (Flash-Decoding, Dao et al., 2023).
#pragma once

#include <cstdint>

#include "models/ops/cuda/attention/head_lanes.cuh"
#include "parallel/device/cuda/device_math.cuh"

namespace troupe::cuda {

/// Query heads, or columns, of one instruction.
constexpr int tile_columns = 8;

/// Arithmetic that the compiler may fuse, of pages of which a row sees something.
struct FusibleArithmetic {
  static __device__ __forceinline__ float multiply(float a, float b) { return a * b; }
  static __device__ __forceinline__ float add(float a, float b) { return a + b; }
  static __device__ __forceinline__ float subtract(float a, float b) { return a - b; }
  static __device__ __forceinline__ float origin(float maximum) { return maximum; }
};

/// Arithmetic that rounds each operation by itself, so that kernels of all sizes give the same
/// bits; also of pages of which a row sees nothing.
struct RoundedArithmetic {
  static __device__ __forceinline__ float multiply(float a, float b) { return __fmul_rn(a, b); }
  static __device__ __forceinline__ float add(float a, float b) { return __fadd_rn(a, b); }
  static __device__ __forceinline__ float subtract(float a, float b) { return __fsub_rn(a, b); }
  /// The value relative to which terms with this maximum are computed; any value while there is
  /// none.
  static __device__ __forceinline__ float origin(float maximum) {
    return maximum == -INFINITY ? 0.0F : maximum;
  }
};

/// The online softmax of a warp for a tile of 8 columns: for columns 2 (lane % 4) and the next, the
/// scores' maximum and this lane's share of their total; for all columns, sums[f] has the elements
/// Lanes::element(f) and the next, each for both columns.
template <int dim, class Arithmetic, class Lanes = HeadLanes<dim>>
struct OnlineSoftmax {
  float maximum[2] = {-INFINITY, -INFINITY};
  float total[2] = {};
  float sums[Lanes::fragments][4] = {};

  /// `scores`: of positions lane / 4 (two columns) and lane / 4 + 8; turns them into softmax terms.
  __device__ void add_scores(float (&scores)[4]) {
    add_scores(scores, [](float score, int) { return score; });
  }
  /// The same, with the maximum of what `peak` makes of the scores of positions lane / 4 (0) and
  /// lane / 4 + 8 (1). Terms may then be more than 1.
  template <class Peak>
  __device__ __forceinline__ void add_scores(float (&scores)[4], const Peak& peak) {
    using A = Arithmetic;
    float now[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      now[i] = fmaxf(maximum[i], max_of_column(fmaxf(peak(scores[i], 0), peak(scores[2 + i], 1))));
    }
    if (__any_sync(~0U, now[0] > maximum[0] || now[1] > maximum[1])) {
      // 1 for a column whose maximum stays.
      const float shrink[2] = {exp2f(A::subtract(maximum[0], A::origin(now[0]))),
                               exp2f(A::subtract(maximum[1], A::origin(now[1])))};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        total[i] = A::multiply(total[i], shrink[i]);
        maximum[i] = now[i];
      }
#pragma unroll
      for (auto& fragment : sums) {
#pragma unroll
        for (int i = 0; i < 4; ++i) fragment[i] = A::multiply(fragment[i], shrink[i % 2]);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[i] = exp2f(A::subtract(scores[i], A::origin(maximum[i % 2])));
      total[i % 2] = A::add(total[i % 2], scores[i]);
    }
  }

  /// Stores to scales[column] and to the `dim` floats at sums_of(column), for the tile's first
  /// `columns`.
  template <class SumsOf>
  __device__ __forceinline__ void store(int columns, float2* scales, const SumsOf& sums_of) const {
    const int lane = threadIdx.x % 32, eighth = lane / 4, fourth = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column = 2 * fourth + i;
      const float all = sum_of_column(total[i]);
      if (column >= columns) continue;
      if (eighth == 0) scales[column] = {maximum[i], all};
#pragma unroll
      for (int f = 0; f < Lanes::fragments; ++f) {
        float* const to = sums_of(column) + Lanes::element(f, eighth);
        *reinterpret_cast<float2*>(to) = {sums[f][i], sums[f][2 + i]};
      }
    }
  }
};

/// Four elements of a column's sum, with its maximum and total: of nothing, one part, or all.
struct PartSum {
  float4 sum{};
  float total = 0.0F;
  float maximum = -INFINITY;

  /// Adds one of several sums whose common maximum is known.
  __device__ __forceinline__ void add_below(float common, float2 scale, float4 of) {
    const float weight = exp2f(__fsub_rn(scale.x, common));  // 0 for an empty sum
    maximum = common;
    total = __fmaf_rn(weight, scale.y, total);
    sum.x = __fmaf_rn(weight, of.x, sum.x);
    sum.y = __fmaf_rn(weight, of.y, sum.y);
    sum.z = __fmaf_rn(weight, of.z, sum.z);
    sum.w = __fmaf_rn(weight, of.w, sum.w);
  }

  /// Adds the next part, which the row must see.
  __device__ __forceinline__ void add_part(const PartSum& part) {
    const float now = fmaxf(maximum, part.maximum);
    const float own = exp2f(__fsub_rn(maximum, now)), other = exp2f(__fsub_rn(part.maximum, now));
    maximum = now;
    total = __fmaf_rn(other, part.total, __fmul_rn(own, total));
    sum.x = __fmaf_rn(other, part.sum.x, __fmul_rn(own, sum.x));
    sum.y = __fmaf_rn(other, part.sum.y, __fmul_rn(own, sum.y));
    sum.z = __fmaf_rn(other, part.sum.z, __fmul_rn(own, sum.z));
    sum.w = __fmaf_rn(other, part.sum.w, __fmul_rn(own, sum.w));
  }

  /// Adds a score without a value, after all parts; none if it is -infinity.
  __device__ __forceinline__ void add_sink(float score) {
    if (score == -INFINITY) return;
    add_part({.sum = {}, .total = 1.0F, .maximum = score});
  }

  /// Writes the row's output.
  __device__ __forceinline__ void write(bf16* to) const {
    auto* const pairs = reinterpret_cast<__nv_bfloat162*>(to);
    pairs[0] = __floats2bfloat162_rn(__fdiv_rn(sum.x, total), __fdiv_rn(sum.y, total));
    pairs[1] = __floats2bfloat162_rn(__fdiv_rn(sum.z, total), __fdiv_rn(sum.w, total));
  }
  /// Leaves a part of a row to the block that combines the parts: to scales[column], and by the
  /// thread of any `element` to sums[column][element].
  template <int dim>
  __device__ __forceinline__ void leave(float* sums, float2* scales, std::int64_t column,
                                        int element) const {
    __stcg(reinterpret_cast<float4*>(sums + column * dim + element), sum);
    if (element == 0) __stcg(scales + column, make_float2(maximum, total));
  }
};

/// The element's four sums over the warps of a block, which have stored those of a column at
/// warp_sums(warp, column).
template <int warps, int columns, class WarpSums>
__device__ __forceinline__ PartSum sum_of_warps(const float2 (&scales)[warps][columns],
                                                const WarpSums& warp_sums, int column,
                                                int element) {
  float maximum = -INFINITY;
#pragma unroll
  for (int w = 0; w < warps; ++w) maximum = fmaxf(maximum, scales[w][column].x);
  PartSum sum;
#pragma unroll
  for (int w = 0; w < warps; ++w) {
    sum.add_below(maximum, scales[w][column],
                  *reinterpret_cast<const float4*>(warp_sums(w, column) + element));
  }
  return sum;
}

/// Called by the whole block, which has left its parts of a row: true if all `items` blocks of the
/// row have, which `finished` counts. `is_last` is shared memory.
__device__ __forceinline__ bool is_last_item(unsigned* finished, int items, bool& is_last) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    const auto last = static_cast<unsigned>(items - 1);
    is_last = atomicInc(finished, last) == last;  // wraps to 0 again
  }
  __syncthreads();
  if (is_last) __threadfence();
  return is_last;
}

}  // namespace troupe::cuda
