// A block's share of a row of logits that is spread over a cluster of blocks (row_parts.cuh).
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/ops/cuda/sampling/candidates.cuh"

namespace troupe::cuda {

constexpr int row_parts = 8;  // blocks of a cluster
constexpr int part_threads = 512;
constexpr int part_warps = part_threads / 32;
constexpr int group_lanes = 8;
constexpr int part_groups = part_threads / group_lanes;
constexpr int row_groups = part_groups * row_parts;
static_assert(row_groups == part_threads, "each thread looks at one group's best");
constexpr int bins = 2048;
static_assert(max_listed == part_threads, "a block looks at a list a thread each");

/// A maximum: the largest logit, the lowest id that has it, and if any logit is not finite.
struct Best {
  float logit;
  std::int32_t id;
  std::uint32_t bad;
};

/// Sums over a row: of all parts, and of the parts before this one.
struct PartSums {
  std::uint64_t before;
  std::uint64_t total;
};

/// The histogram bin in which the sum from the largest keys downwards reaches a limit.
struct Crossing {
  std::uint32_t bin;
  std::uint64_t above;  // the sum of the bins above it
  std::uint64_t total;  // of all bins
};

/// The element at which the sum from the largest keys downwards reaches a limit: its key, and the
/// sum `above` of larger keys.
struct CrossingKey {
  std::uint32_t key;
  std::uint64_t above;
  std::uint64_t limit;
};

/// A block's shared memory.
struct PartMemory {
  std::uint64_t warp_sums[part_warps];
  std::uint64_t bin_sums[part_warps];
  std::uint64_t part_sums[2][row_parts];  // written by all parts
  TokenList list;                         // part 0's, written by all parts
  Crossing found;                         // written by this part
  Crossing told;                          // written by part 0
  std::int32_t reported_id;               // written by the part that found it
  std::uint32_t reported_next;            // written by part 0
  Best warp_best[part_warps];
  Best part_best[2][row_parts];  // written by all parts
  std::uint32_t part_counts[2][row_parts];
  std::uint32_t low[bins], high[bins];  // a histogram: sums of digits' low 12 bits and the others
  float group_best[row_groups];         // written by all parts
  std::uint32_t listed;                 // entries of part 0's list
  std::uint32_t own_listed;
  alignas(16) float values[4];  // the part of the row, with its actual length
};

/// The bytes of shared memory before the values.
constexpr int part_overhead = sizeof(PartMemory) - 4 * sizeof(float);

/// The longest row at `of_token` bytes per token: a block has 227 KiB of shared memory.
constexpr std::int64_t max_row_tokens(int of_token) {
  return std::int64_t{row_parts} * (((227 << 10) - part_overhead) / (4 * of_token) * 4);
}

__device__ __forceinline__ std::uint64_t sum_of_warp(std::uint64_t value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0U, value, offset);
  return value;
}

/// The inclusive prefix sum over the lanes.
__device__ __forceinline__ std::uint64_t running_sum_of_warp(std::uint64_t value) {
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const std::uint64_t other = __shfl_up_sync(~0U, value, offset);
    if (static_cast<int>(threadIdx.x % 32) >= offset) value += other;
  }
  return value;
}

__device__ __forceinline__ Best better(const Best& a, const Best& b) {
  const bool first = a.logit > b.logit || (a.logit == b.logit && a.id <= b.id);
  return {first ? a.logit : b.logit, first ? a.id : b.id, a.bad | b.bad};
}

__device__ __forceinline__ Best best_of_warp(Best best) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    best = better(best,
                  {__shfl_xor_sync(~0U, best.logit, offset), __shfl_xor_sync(~0U, best.id, offset),
                   __shfl_xor_sync(~0U, best.bad, offset)});
  }
  return best;
}

}  // namespace troupe::cuda
