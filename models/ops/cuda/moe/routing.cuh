// Choosing experts by a token's scores.
#pragma once

#include <cstdint>

#include "parallel/device/cuda/device_math.cuh"

namespace troupe::cuda {

constexpr int warp = 32;
constexpr int max_small_batch_tokens = 32;  // that one block routes and sorts
constexpr float lowest_choice = -1.0e38F;   // below every choice value

struct Routing {
  int experts, top_k, groups, top_groups;
  bool normalize, sigmoid, best_score_groups;
  float scale;
};

/// Maps values to positive integers in the same order; equal values get the same one.
__device__ __forceinline__ std::uint32_t ordered(float value) {
  const std::uint32_t bits = __float_as_uint(value + 0.0F);  // -0.0 becomes 0.0
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}

/// A lane's share of a token's choices: number `lane`, if below top_k.
struct Choice {
  int id;
  float weight;
};

/// route_in_memory without groups, by a warp with the token's scores in registers: number i of a
/// lane is expert 32 i + lane.
template <int per_lane>
__device__ Choice route_in_registers(const float* row, const float* bias, const Routing& routing) {
  const int lane = threadIdx.x % warp;
  float scores[per_lane], choice[per_lane];
  float largest = -INFINITY, total = 0.0F;
#pragma unroll
  for (int i = 0; i < per_lane; ++i) {
    const int e = i * warp + lane;
    scores[i] = e < routing.experts ? row[e] : -INFINITY;
    largest = fmaxf(largest, scores[i]);
  }
  largest = warp_max(largest);
#pragma unroll
  for (int i = 0; i < per_lane; ++i) {
    scores[i] = routing.sigmoid ? 1.0F / (1.0F + expf(-scores[i])) : expf(scores[i] - largest);
    if (i * warp + lane < routing.experts) total += scores[i];
  }
  total = warp_sum(total);
#pragma unroll
  for (int i = 0; i < per_lane; ++i) {
    const int e = i * warp + lane;
    if (!routing.sigmoid) scores[i] /= total;
    const float value = bias == nullptr || e >= routing.experts ? scores[i] : scores[i] + bias[e];
    choice[i] = value > lowest_choice ? value : lowest_choice;  // for a NaN, too
  }
  std::uint32_t keys[per_lane];
#pragma unroll
  for (int i = 0; i < per_lane; ++i) {
    keys[i] = i * warp + lane < routing.experts ? ordered(choice[i]) : 0;
  }
  float chosen = 0.0F, own_weight = 0.0F;
  int own_id = 0;
  for (int c = 0; c < routing.top_k; ++c) {
    std::uint32_t best = 0;
#pragma unroll
    for (const std::uint32_t key : keys) best = max(best, key);
    best = __reduce_max_sync(~0U, best);
    unsigned index = ~0U;
#pragma unroll
    for (int i = per_lane - 1; i >= 0; --i) {
      if (keys[i] == best) index = i * warp + lane;
    }
    index = __reduce_min_sync(~0U, index);
    float score = 0.0F;
#pragma unroll
    for (int i = 0; i < per_lane; ++i) {
      if (index != i * warp + lane) continue;
      score = scores[i];
      keys[i] = 0;
    }
    score = __shfl_sync(~0U, score, static_cast<int>(index % warp));
    chosen += score;
    if (lane == c) {
      own_weight = score;
      own_id = static_cast<int>(index);
    }
  }
  // All sigmoids may be zero; in any other sum the addend is lost.
  const float divisor = routing.normalize ? chosen + 1e-20F : 1.0F;
  return {own_id, own_weight / divisor * routing.scale};
}

/// The outputs of routing a few tokens.
struct SmallBatchChoices {
  std::int32_t* ids;
  float* weights;
  std::int64_t first_expert;
  int experts;  // local ones
  std::int32_t* offsets;
  std::int32_t* source;
  std::int64_t* counts;
};

/// MoeOps::route_and_permute, by one block with a warp for each token at least: a warp routes a
/// token; then each thread counts, for an expert or for a pair, the assignments that come before
/// it.
template <int per_lane>
__device__ void choose_in_block(const float* logits, const float* bias, const Routing& routing,
                                int tokens, const SmallBatchChoices& to) {
  __shared__ int chosen[max_small_batch_tokens * warp];
  const int token = threadIdx.x / warp, lane = threadIdx.x % warp;
  if (token < tokens) {
    const Choice choice =
        route_in_registers<per_lane>(logits + token * routing.experts, bias, routing);
    const int pair = token * routing.top_k + lane;
    if (lane < routing.top_k) {
      to.ids[pair] = choice.id;
      to.weights[pair] = choice.weight;
      const std::int64_t local = choice.id - to.first_expert;
      chosen[pair] = local >= 0 && local < to.experts ? static_cast<int>(local) : to.experts;
    }
  }
  __syncthreads();
  const int assignments = tokens * routing.top_k;
  for (int e = threadIdx.x; e <= to.experts; e += blockDim.x) {
    int before = 0, own = 0;
    for (int p = 0; p < assignments; ++p) {
      before += chosen[p] < e ? 1 : 0;
      own += chosen[p] == e ? 1 : 0;
    }
    to.offsets[e] = before;
    // The old value is not waited for.
    if (e < to.experts && own > 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(&to.counts[e]),
                static_cast<unsigned long long>(own));
    }
  }
  for (int pair = threadIdx.x; pair < assignments; pair += blockDim.x) {
    const int expert = chosen[pair];
    if (expert == to.experts) continue;
    int before = 0;
    for (int p = 0; p < assignments; ++p) {
      before += chosen[p] < expert || (chosen[p] == expert && p < pair) ? 1 : 0;
    }
    to.source[before] = pair;
  }
}

}  // namespace troupe::cuda
