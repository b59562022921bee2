// Which experts the tokens of a small batch chose, for each block of small_batch_moe.cu.
#pragma once

#include <cstdint>

#include "models/ops/cuda/moe/small_batch_moe.hpp"

namespace troupe::cuda {

constexpr int max_assignments = 64;

#if __CUDA_ARCH__ >= 900
/// A block's copy of a pass's choices. Rows are those of `activated`: sorted ones, or for a single
/// token its choices in order.
struct Plan {
  int expert_at[max_assignments];          // the expert whose first row this is, or -1
  int rows_at[max_assignments];            // that expert's number of rows
  int first_of[max_assignments];           // the first row of a row's expert, or without one itself
  int row_of_assignment[max_assignments];  // -1: the expert is on another rank
  int firsts[max_assignments];             // the rows that are an expert's first
  int active;                              // number of experts with rows
  float weights[max_assignments];

  /// Called by all threads; ends with a barrier.
  __device__ void make(const SmallBatchMoe& call) {
    if (call.tokens > 1) {
      make_of_tokens(call);
    } else if (threadIdx.x < 32) {
      make_of_token(call);
    }
    __syncthreads();
  }

 private:
  /// For one token: each choice is a row, no sorting needed. Called by a warp.
  __device__ void make_of_token(const SmallBatchMoe& call) {
    for (int pair = threadIdx.x; pair < max_assignments; pair += 32) {
      const bool chosen = pair < call.top_k;
      const std::int32_t id = chosen ? call.ids[pair] : 0;  // both are read at once
      const float weight = chosen ? call.weights[pair] : 0.0F;
      const std::int64_t expert = chosen ? id - call.first_expert : -1;
      const bool here = expert >= 0 && expert < call.experts;
      expert_at[pair] = here ? static_cast<int>(expert) : -1;
      rows_at[pair] = 1;
      first_of[pair] = pair;
      row_of_assignment[pair] = here ? pair : -1;
      weights[pair] = weight;
    }
    __syncwarp();
    list_firsts();
  }
  /// Called by a warp.
  __device__ void list_firsts() {
    int listed = 0;
    for (int row = threadIdx.x; row < max_assignments; row += 32) {
      const bool first = expert_at[row] >= 0;
      const unsigned all = __ballot_sync(~0U, first), before = all & ((1U << threadIdx.x) - 1);
      if (first) firsts[listed + __popc(before)] = row;
      listed += __popc(all);
    }
    if (threadIdx.x == 0) active = listed;
  }
  /// Called by all threads.
  __device__ void make_of_tokens(const SmallBatchMoe& call) {
    const int assignments = static_cast<int>(call.tokens * call.top_k);
    const int own = threadIdx.x;
    // All values are read at once.
    const int valid = call.offsets[call.experts];
    const int begin = own < call.experts ? call.offsets[own] : 0;
    const int end = own < call.experts ? call.offsets[own + 1] : 0;
    const int pair = own < assignments ? call.source[own] : 0;
    if (own < assignments) weights[own] = call.weights[own];
    if (own < max_assignments) {
      expert_at[own] = -1;
      first_of[own] = own;
      row_of_assignment[own] = -1;
    }
    __syncthreads();
    const auto note = [&](int expert, int from, int to) {
      if (from == to) return;
      expert_at[from] = expert;
      rows_at[from] = to - from;
      for (int row = from; row < to; ++row) first_of[row] = from;
    };
    note(own, begin, end);
    const int threads = static_cast<int>(blockDim.x);
    for (int e = own + threads; e < call.experts; e += threads) {
      note(e, call.offsets[e], call.offsets[e + 1]);
    }
    if (own < valid) row_of_assignment[pair] = own;
    __syncthreads();
    if (own < 32) list_firsts();
  }
};
#endif

}  // namespace troupe::cuda
