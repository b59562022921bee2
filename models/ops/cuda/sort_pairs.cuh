// Sorting pairs of a token and one of its experts by expert, in one cluster of blocks.
#pragma once

#include <cstdint>

#include "models/ops/cuda/cluster.cuh"

namespace troupe::cuda {

constexpr int sort_threads = 1024;

/// The rows of ids that count: all.
struct AllRows {
  static constexpr bool in_place = true;
  std::int64_t rows;
  __device__ std::int64_t count() const { return rows; }
  __device__ std::int64_t place(std::int64_t row) const { return row; }
};

/// The rows of ids that count: the first few of each of equal parts.
struct FilledRows {
  static constexpr bool in_place = false;
  static constexpr int most_parts = 8;
  std::int64_t each;
  std::int64_t begin[most_parts + 1];

  __device__ FilledRows(const std::int32_t* filled, int parts, std::int64_t rows_each)
      : each(rows_each) {
    begin[0] = 0;
#pragma unroll
    for (int p = 0; p < most_parts; ++p) begin[p + 1] = begin[p] + (p < parts ? filled[p] : 0);
  }
  __device__ std::int64_t count() const { return begin[most_parts]; }
  /// Of the row-th of all.
  __device__ std::int64_t place(std::int64_t row) const {
    std::int64_t at = row;
#pragma unroll
    for (int p = 1; p < most_parts; ++p) {
      if (row >= begin[p]) at = row - begin[p] + p * each;
    }
    return at;
  }
};

/// The exclusive sum of totals[0 .. experts) to offsets[0 .. experts], maybe the same; by one warp.
__device__ inline void sum_up(const std::int32_t* totals, int experts, std::int32_t* offsets) {
  const int lane = threadIdx.x % 32;
  std::int32_t before = 0;
  for (int begin = 0; begin < experts; begin += 32) {
    const int e = begin + lane;
    const std::int32_t total = e < experts ? totals[e] : 0;
    std::int32_t sum = total;
    for (int distance = 1; distance < 32; distance *= 2) {
      const std::int32_t other = __shfl_up_sync(~0U, sum, distance);
      if (lane >= distance) sum += other;
    }
    if (e < experts) offsets[e] = before + sum - total;
    before += __shfl_sync(~0U, sum, 31);
  }
  if (lane == 0) offsets[experts] = before;
}

/// What is sorted, and where to.
struct Sorting {
  const std::int32_t* ids;
  int top_k;
  std::int64_t first_expert;
  int experts;
  std::int32_t* offsets;
  std::int32_t* source;
  std::int64_t* counts;  ///< to which the experts' rows are added; may be null
};

/// By all threads of a cluster's blocks, of whole warps: keeps the order of an expert's pairs. Each
/// warp counts the experts of its share of the tokens, which gives places to each warp's first
/// rows; then a lane has a token, whose experts are all different, and bits tell which lanes before
/// it have an expert too. `places`: shared memory for places and bits [warps, experts], totals
/// [experts], offsets [experts + 1].
template <class Rows>
__device__ void sort_in_cluster(const Sorting& sorting, const Rows& rows, std::int32_t* places) {
  constexpr int warp = 32;
  constexpr int ids_at_once = 8;  // that a thread reads: one would wait for memory as long as all
  const int experts = sorting.experts, top_k = sorting.top_k;
  const int warps = blockDim.x / warp, own = threadIdx.x / warp, lane = threadIdx.x % warp;
  auto* bits = reinterpret_cast<std::uint32_t*>(places) + warps * experts + own * experts;
  std::int32_t* totals = places + 2 * warps * experts;
  std::int32_t* first = totals + experts;
  std::int32_t* mine = places + own * experts;
  for (int i = threadIdx.x; i < 2 * warps * experts; i += blockDim.x) places[i] = 0;
  __syncthreads();
  const std::int64_t tokens = rows.count();
  const int blocks = gridDim.x, all_warps = blocks * warps;
  const std::int64_t share = (tokens + all_warps * warp - 1) / (all_warps * warp) * warp;
  const std::int64_t begin = min((blockIdx.x * warps + own) * share, tokens);
  const std::int64_t end = min(begin + share, tokens);
  const auto local = [&](std::int64_t place, bool there) {
    const std::int64_t expert = there ? sorting.ids[place] - sorting.first_expert : -1;
    return expert < experts ? static_cast<int>(expert) : -1;
  };
  const auto place_of = [&](std::int64_t pair) {
    if constexpr (Rows::in_place) {
      return pair;
    } else {
      const std::int64_t token = static_cast<std::uint32_t>(pair) / static_cast<unsigned>(top_k);
      return rows.place(token) * top_k + (pair - token * top_k);
    }
  };
  for (std::int64_t pair = begin * top_k + lane; pair < end * top_k; pair += ids_at_once * warp) {
    int found[ids_at_once];
#pragma unroll
    for (int i = 0; i < ids_at_once; ++i) {
      found[i] = local(place_of(pair + i * warp), pair + i * warp < end * top_k);
    }
#pragma unroll
    for (const int expert : found) {
      if (expert >= 0) atomicAdd(&mine[expert], 1);
    }
  }
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += blockDim.x) {
    std::int32_t sum = 0;
    for (int w = 0; w < warps; ++w) {
      const std::int32_t count = places[w * experts + e];
      places[w * experts + e] = sum;
      sum += count;
    }
    totals[e] = sum;
  }
  meet_in_cluster();  // and all threads of the block
  for (int e = threadIdx.x; e < experts; e += blockDim.x) {
    std::int32_t before = 0, all = 0;
    for (int block = 0; block < blocks; ++block) {
      const std::int32_t count = *in_block(&totals[e], block);
      if (block < static_cast<int>(blockIdx.x)) before += count;
      all += count;
    }
    for (int w = 0; w < warps; ++w) places[w * experts + e] += before;
    first[e] = all;
    if (blockIdx.x == 0 && sorting.counts != nullptr) sorting.counts[e] += all;
  }
  meet_in_cluster();  // nobody reads another's totals any more
  if (own == 0) sum_up(first, experts, first);
  __syncthreads();
  for (int i = threadIdx.x; i < warps * experts; i += blockDim.x) places[i] += first[i % experts];
  if (blockIdx.x == 0) {
    for (int e = threadIdx.x; e <= experts; e += blockDim.x) sorting.offsets[e] = first[e];
  }
  __syncthreads();
  for (std::int64_t token = begin + lane; token - lane < end; token += warp) {
    const bool there = token < end;
    const std::int64_t pair = there ? rows.place(token) * top_k : 0;
    const auto for_each = [&](const auto& body) {
      for (int c = 0; c < top_k; c += ids_at_once) {
        int found[ids_at_once];
#pragma unroll
        for (int i = 0; i < ids_at_once; ++i)
          found[i] = local(pair + c + i, there && c + i < top_k);
#pragma unroll
        for (int i = 0; i < ids_at_once; ++i) {
          if (found[i] >= 0) body(found[i], static_cast<std::int32_t>(pair + c + i));
        }
      }
    };
    for_each([&](int expert, std::int32_t) { atomicOr(&bits[expert], 1U << lane); });
    __syncwarp();
    for_each([&](int expert, std::int32_t at) {
      sorting.source[mine[expert] + __popc(bits[expert] & ((1U << lane) - 1U))] = at;
    });
    __syncwarp();
    for (int e = lane; e < experts; e += warp) {
      mine[e] += __popc(bits[e]);
      bits[e] = 0;
    }
    __syncwarp();
  }
}

}  // namespace troupe::cuda
