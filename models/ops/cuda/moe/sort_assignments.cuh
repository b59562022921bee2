// Sorting (token, expert) assignments by expert, in one cluster of blocks.
#pragma once

#include <cstdint>

#include "models/ops/cuda/common/cluster.cuh"
#include "models/ops/cuda/common/warp_scan.cuh"

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
  static constexpr int max_parts = 8;
  std::int64_t each;
  std::int64_t begin[max_parts + 1];

  __device__ FilledRows(const std::int32_t* received_counts, int parts, std::int64_t rows_each)
      : each(rows_each) {
    begin[0] = 0;
#pragma unroll
    for (int p = 0; p < max_parts; ++p)
      begin[p + 1] = begin[p] + (p < parts ? received_counts[p] : 0);
  }
  __device__ std::int64_t count() const { return begin[max_parts]; }
  /// The index of the row-th counted row among all.
  __device__ std::int64_t place(std::int64_t row) const {
    std::int64_t at = row;
#pragma unroll
    for (int p = 1; p < max_parts; ++p) {
      if (row >= begin[p]) at = row - begin[p] + p * each;
    }
    return at;
  }
};

/// The input and outputs of sorting.
struct Sorting {
  const std::int32_t* ids;
  int top_k;
  std::int64_t first_expert;
  int experts;
  std::int32_t* offsets;
  std::int32_t* source;
  std::int64_t* counts;  ///< accumulates the experts' row counts; may be null

  /// The local expert of the assignment at `place` of the ids; below 0: not local, or not `there`.
  __device__ int local_expert(std::int64_t place, bool there) const {
    const std::int64_t expert = there ? ids[place] - first_expert : -1;
    return expert < experts ? static_cast<int>(expert) : -1;
  }
};

/// A cluster's assignments of an expert: in the blocks before this one, and in all.
struct ExpertTotals {
  std::int32_t before = 0, all = 0;

  /// `totals`: this block's; the other blocks have theirs at the same address.
  __device__ ExpertTotals(std::int32_t* totals, int expert) {
    for (int block = 0; block < static_cast<int>(gridDim.x); ++block) {
      const std::int32_t count = *in_block(&totals[expert], block);
      if (block < static_cast<int>(blockIdx.x)) before += count;
      all += count;
    }
  }
};

constexpr int ids_at_once = 8;  // per thread: reading one takes as long as reading all

/// Writes a warp's assignments, those of tokens [begin, end), to their places: each lane has a
/// token, whose experts are all different, and bits show which lower lanes have an expert too.
/// `first` [experts]: where the warp's assignments of an expert begin; `bits` [experts]: zeros.
template <class Rows>
__device__ void place_pairs(const Sorting& sorting, const Rows& rows, std::int64_t begin,
                            std::int64_t end, std::int32_t* first, std::uint32_t* bits) {
  constexpr int warp = 32;
  const int experts = sorting.experts, top_k = sorting.top_k, lane = threadIdx.x % warp;
  for (std::int64_t token = begin + lane; token - lane < end; token += warp) {
    const bool there = token < end;
    const std::int64_t pair = there ? rows.place(token) * top_k : 0;
    const auto for_each = [&](const auto& body) {
      for (int c = 0; c < top_k; c += ids_at_once) {
        int found[ids_at_once];
#pragma unroll
        for (int i = 0; i < ids_at_once; ++i) {
          found[i] = sorting.local_expert(pair + c + i, there && c + i < top_k);
        }
#pragma unroll
        for (int i = 0; i < ids_at_once; ++i) {
          if (found[i] >= 0) body(found[i], static_cast<std::int32_t>(pair + c + i));
        }
      }
    };
    for_each([&](int expert, std::int32_t) { atomicOr(&bits[expert], 1U << lane); });
    __syncwarp();
    for_each([&](int expert, std::int32_t at) {
      sorting.source[first[expert] + __popc(bits[expert] & ((1U << lane) - 1U))] = at;
    });
    __syncwarp();
    for (int e = lane; e < experts; e += warp) {
      first[e] += __popc(bits[e]);
      bits[e] = 0;
    }
    __syncwarp();
  }
}

/// Called by all threads of a cluster's blocks, in whole warps: keeps the order of an expert's
/// assignments. Each warp counts the experts of its share of the tokens, which determines where
/// each warp's rows begin. `places`: shared memory for places and bits [warps, experts], totals
/// [experts], offsets [experts + 1].
template <class Rows>
__device__ void sort_in_cluster(const Sorting& sorting, const Rows& rows, std::int32_t* places) {
  constexpr int warp = 32;
  const int experts = sorting.experts, top_k = sorting.top_k;
  const int warps = blockDim.x / warp, own = threadIdx.x / warp, lane = threadIdx.x % warp;
  auto* bits = reinterpret_cast<std::uint32_t*>(places) + warps * experts + own * experts;
  std::int32_t* totals = places + 2 * warps * experts;
  std::int32_t* first = totals + experts;
  std::int32_t* mine = places + own * experts;
  for (int i = threadIdx.x; i < 2 * warps * experts; i += blockDim.x) places[i] = 0;
  __syncthreads();
  const std::int64_t tokens = rows.count();
  const int all_warps = gridDim.x * warps;
  const std::int64_t share = (tokens + all_warps * warp - 1) / (all_warps * warp) * warp;
  const std::int64_t begin = min((blockIdx.x * warps + own) * share, tokens);
  const std::int64_t end = min(begin + share, tokens);
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
      found[i] = sorting.local_expert(place_of(pair + i * warp), pair + i * warp < end * top_k);
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
  meet_in_cluster();  // also synchronises the block's threads
  for (int e = threadIdx.x; e < experts; e += blockDim.x) {
    const ExpertTotals of(totals, e);
    for (int w = 0; w < warps; ++w) places[w * experts + e] += of.before;
    first[e] = of.all;
    if (blockIdx.x == 0 && sorting.counts != nullptr) sorting.counts[e] += of.all;
  }
  meet_in_cluster();  // no block reads another's totals any more
  if (own == 0) sum_up([&](int e) { return first[e]; }, experts, first);
  __syncthreads();
  for (int i = threadIdx.x; i < warps * experts; i += blockDim.x) places[i] += first[i % experts];
  if (blockIdx.x == 0) {
    for (int e = threadIdx.x; e <= experts; e += blockDim.x) sorting.offsets[e] = first[e];
  }
  __syncthreads();
  place_pairs(sorting, rows, begin, end, mine, bits);
}

constexpr int batch_warps = 32;           // per block, a token each
constexpr int max_turns = 4;              // per warp
constexpr int max_assignment_lanes = 32;  // choices of a token, one per lane

/// sort_in_cluster for a decode batch: at most max_turns * batch_warps tokens per block of
/// batch_warps warps, with at most max_assignment_lanes choices. Bits show which of a block's
/// tokens have an expert; the number of earlier tokens with it is an assignment's place in the
/// block. Each id is read once. `memory`: bits [turns, experts], counts [experts], places
/// [experts], offsets [experts + 1].
__device__ inline void sort_batch_in_cluster(const Sorting& sorting, int tokens, int turns,
                                             std::uint32_t* memory) {
  const int experts = sorting.experts, top_k = sorting.top_k;
  const int own = threadIdx.x / 32, lane = threadIdx.x % 32;
  std::uint32_t* const bits = memory;
  auto* const counts = reinterpret_cast<std::int32_t*>(bits + turns * experts);
  std::int32_t *const places = counts + experts, *const offsets = places + experts;
  const auto pair_of = [&](int turn) {
    const int token = (static_cast<int>(blockIdx.x) * turns + turn) * batch_warps + own;
    return turn < turns && token < tokens && lane < top_k ? token * top_k + lane : -1;
  };
  std::int64_t found[max_turns];
#pragma unroll
  for (int turn = 0; turn < max_turns; ++turn) {
    const int pair = pair_of(turn);
    found[turn] = pair >= 0 ? sorting.ids[pair] - sorting.first_expert : -1;
  }
  for (int i = threadIdx.x; i < turns * experts; i += blockDim.x) bits[i] = 0;
  __syncthreads();
#pragma unroll
  for (int turn = 0; turn < max_turns; ++turn) {
    if (found[turn] >= experts) found[turn] = -1;
    if (found[turn] >= 0) atomicOr(&bits[turn * experts + found[turn]], 1U << own);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += blockDim.x) {
    std::int32_t count = 0;
    for (int turn = 0; turn < turns; ++turn) count += __popc(bits[turn * experts + e]);
    counts[e] = count;
  }
  meet_in_cluster();  // also synchronises the block's threads
  for (int e = threadIdx.x; e < experts; e += blockDim.x) {
    const ExpertTotals of(counts, e);
    places[e] = of.before;
    offsets[e] = of.all;
    if (blockIdx.x == 0 && sorting.counts != nullptr) sorting.counts[e] += of.all;
  }
  arrive_in_cluster();  // other blocks' counts are no longer read
  __syncthreads();
  if (own == 0) sum_up([&](int e) { return offsets[e]; }, experts, offsets);
  __syncthreads();
  if (blockIdx.x == 0) {
    for (int e = threadIdx.x; e <= experts; e += blockDim.x) sorting.offsets[e] = offsets[e];
  }
#pragma unroll
  for (int turn = 0; turn < max_turns; ++turn) {
    const auto expert = static_cast<int>(found[turn]);
    if (expert < 0) continue;
    std::int32_t place = offsets[expert] + places[expert];
    for (int t = 0; t < turn; ++t) place += __popc(bits[t * experts + expert]);
    place += __popc(bits[turn * experts + expert] & ((1U << own) - 1U));
    sorting.source[place] = pair_of(turn);
  }
  __syncwarp();
  wait_for_cluster();
}

}  // namespace troupe::cuda
