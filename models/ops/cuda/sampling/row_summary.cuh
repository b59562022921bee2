// Reads logits once, at memory bandwidth, and keeps for each group of 256 the largest, and the sum
// of the weights, slightly inexact. Most choices then need only a few groups again
// (summary_choice).
//
// The error: let W_i = e^(x_i), x_i = (logit - largest of the row) / temperature <= 0.
// sampler.cpp's value for W_i has a relative error of 3e-7 + 3u|x_i|, u = 2^-24: its function, and
// the roundings of x_i. The value added here, in_group * of_group, has an error of 4u for each of
// the two powers of two, 12u for the additions in a group and 7u|x_i| for the roundings of the
// exponents, whose slope has an error of 4u. The mean of |x_i|, weighted by W_i, is at most
// ln(tokens) - ln(sum of W): entropy is at most ln(tokens). So a sum of weights over any of 2^18
// tokens has an error of less than 20u + 3e-7 + 10u * 12.5 = 9e-6 of the sum S over all.
// than the share 20u + 3e-7 + 10u * 12.5 = 9e-6 of the sum S over all.
//
// A draw compares a sum over the first tokens with r S, r in [0, 1) the random number: the first
// tokens' errors count 1 - r times, the others' r times. In the one group where it falls, weights
// of single tokens are one power of two, with errors of 4u and 7u|x_i|, and added in doubles. There
// the first tokens' errors are the new ones less r times those of the sum, at most 24u + 3e-7 +
// 10u|x_i| together, as the errors of the slope and of sampler.cpp are the same in both: all are
// less than 9.3e-6. sampler.cpp's rounding of weights to 2^-44 and the additions of groups, in
// doubles, are negligible within `max_offset`.
#pragma once

#include <cstdint>

#include "models/ops/cuda/sampling/row_summary.hpp"
#include "models/ops/cuda/sampling/sampler_arithmetic.cuh"
#include "models/ops/ops.hpp"
#include "parallel/device/cuda/launch.cuh"

namespace troupe::cuda {

constexpr int max_listed_top_k = 256;
constexpr double max_offset = 1e-5;

__host__ __device__ constexpr int groups_of(std::int32_t vocab) {
  return (vocab + group_tokens - 1) / group_tokens;
}
/// The stride from one row's summaries to the next's: rows begin at 16 bytes.
__host__ __device__ constexpr int group_stride(int groups) { return (groups + 1) / 2 * 2; }

__host__ __device__ inline bool is_greedy(const SampledRow& row) {
  return row.temperature < greedy_below;
}
/// True if summaries may decide a row's token: there are not too many candidates for the list, and
/// the temperature is not so high that all tokens are alike and slopes may vanish.
__host__ __device__ inline bool is_summarized(const SampledRow& row) {
  return is_greedy(row) || (row.top_k <= max_listed_top_k && row.temperature <= 1e4F);
}

/// The slope for which e^(difference / temperature) is 2^(difference * slope).
__device__ __forceinline__ float slope_of(float temperature) {
  return __fdividef(1.44269504F, temperature);
}
__device__ __forceinline__ float approximate_weight(float difference, float slope) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(__fmul_rn(difference, slope)));
  return power;
}

/// Loads four logits from index `i`, a multiple of four; after the row's end the lowest float.
template <bool aligned>
__device__ __forceinline__ float4 four_logits(const float* logits, int i, std::int32_t vocab) {
  constexpr float lowest = -3.402823466e38F;
  if constexpr (aligned) {
    return i < vocab ? __ldcs(reinterpret_cast<const float4*>(logits + i))
                     : make_float4(lowest, lowest, lowest, lowest);
  }
  const auto at = [&](int j) { return j < vocab ? logits[j] : lowest; };
  return make_float4(at(i), at(i + 1), at(i + 2), at(i + 3));
}

/// Summarises a group, eight logits per lane.
__device__ __forceinline__ GroupSummary summarize(const float (&values)[8], float slope) {
  float largest = values[0], bad = 0.0F;  // bad: NaN if one is not finite
#pragma unroll
  for (const float value : values) {
    largest = fmaxf(largest, value);
    bad = __fmaf_rn(value, 0.0F, bad);
  }
  // As integers, floats compare in order once negative ones have their lower bits inverted.
  const auto turned = [](std::int32_t bits) { return bits ^ (bits >> 31 & 0x7fffffff); };
  largest = __int_as_float(turned(__reduce_max_sync(~0U, turned(__float_as_int(largest)))));
  float sum = 0.0F;
#pragma unroll
  for (const float value : values) sum += approximate_weight(__fadd_rn(value, -largest), slope);
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0U, sum, lanes);
  return {__any_sync(~0U, bad != bad) ? __int_as_float(0x7fffffff) : largest, sum};
}

constexpr int summary_threads = 256;
constexpr int summary_warps = summary_threads / 32;
constexpr int summary_blocks = 2048 / summary_threads;  // per multiprocessor

/// Writes summaries[i * group_stride(groups) + group] of rows[i]; sets no row pending.
template <bool aligned>
__global__ void __launch_bounds__(summary_threads, summary_blocks)
    summarize_rows(const float* logits, std::int32_t vocab, const SampledRow* rows, int count,
                   SummaryMemory* memory) {
  begin_early_kernel();
  if (blockIdx.x == 0 && threadIdx.x == 0) memory->pending.count = memory->pending.taken = 0;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int groups = groups_of(vocab), stride = group_stride(groups);
  const int all = count * groups;
  const int of_block = (all + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
  const int begin = static_cast<int>(blockIdx.x) * of_block;
  int left = min(of_block, all - begin) - static_cast<int>(threadIdx.x) / 32;
  int group = begin + static_cast<int>(threadIdx.x) / 32, i = group / groups;
  for (group -= i * groups; left > 0; left -= summary_warps, group += summary_warps) {
    for (; group >= groups; group -= groups) ++i;
    const SampledRow& row = rows[i];
    if (!is_summarized(row)) continue;
    const float* const own = logits + std::int64_t{row.row} * vocab;
    const int first = group * group_tokens + lane * 4;
    const float4 a = four_logits<aligned>(own, first, vocab);
    const float4 b = four_logits<aligned>(own, first + 128, vocab);
    const GroupSummary found =
        summarize({a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}, slope_of(row.temperature));
    if (lane == 0) memory->groups[i * stride + group] = found;
  }
}

}  // namespace troupe::cuda
