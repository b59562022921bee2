// Tokens left after a cut, few enough for a block to compare them pair by pair, in no order. All
// threads of a block, at least as many as listed tokens, call these functions together; all see
// earlier writes to the list.
#pragma once

#include <cstdint>

#include "models/ops/cuda/sampling/sampler_arithmetic.cuh"
#include "models/ops/ops.hpp"

namespace troupe::cuda {

constexpr int max_listed = 512;

struct TokenList {
  std::uint64_t wholes[max_listed];
  float values[max_listed];  // logits, then weights
  std::int32_t ids[max_listed];
};

/// A row's parameters besides its logits.
struct Choice {
  SampledRow row;
  float max;
  float scale;

  __device__ std::uint64_t target(std::uint64_t total) const {
    return __umul64hi(random_bits(row.seed, row.position, row.choice), total);
  }
};

/// Bounds of the smallest sum that top_p keeps.
struct Limits {
  std::uint64_t least;
  std::uint64_t most;
};

/// Turns a list's logits into weights, zero where top_k or min_p cuts. All logits larger than one
/// in the list are in it.
__device__ inline void weigh_list(TokenList& list, int listed, const Choice& choice) {
  const int own = static_cast<int>(threadIdx.x);
  const bool cuts = choice.row.top_k > 0;
  float weight = 0.0F;
  if (own < listed) {
    const float logit = list.values[own];
    int larger = 0;
#pragma unroll 4
    for (int i = 0; i < (cuts ? listed : 0); ++i) larger += list.values[i] > logit ? 1 : 0;
    weight = weight_of(logit, choice.max, choice.scale);
    if ((cuts && larger >= choice.row.top_k) || weight < choice.row.min_p) weight = 0.0F;
  }
  __syncthreads();
  if (own < listed) list.values[own] = weight;
  __syncthreads();
}

/// Drops from a list of weights what top_p drops; limits_of(their sum) are the row's. Returns true
/// if the remaining tokens are certain, even given unlisted ones, which weigh at most
/// `max_of_others`.
template <class LimitsOf>
__device__ bool cut_list(TokenList& list, int listed, LimitsOf&& limits_of,
                         float max_of_others = 0.0F) {
  const int own = static_cast<int>(threadIdx.x);
  const bool here = own < listed;
  const float weight = here ? list.values[own] : 0.0F;
  const std::int32_t id = here ? list.ids[own] : -1;
  if (here) list.wholes[own] = whole(weight);
  __syncthreads();
  std::uint64_t before = 0, total = 0;
#pragma unroll 4
  for (int i = 0; here && i < listed; ++i) {
    const float other = list.values[i];
    const std::uint64_t added = list.wholes[i];
    before += other > weight || (other == weight && list.ids[i] < id) ? added : 0;
    total += other > max_of_others ? added : 0;
  }
  bool stays = true, certain = true;
  if (here) {
    const Limits limits = limits_of(total);
    stays = before < limits.least;
    certain = total >= limits.most && stays == (before < limits.most);
  }
  certain = __syncthreads_and(certain) != 0;
  if (!stays) list.values[own] = 0.0F;
  return certain;
}

/// Samples from a list of weights.
__device__ inline void draw_from_list(TokenList& list, int listed, const Choice& choice,
                                      std::int32_t* chosen) {
  const int own = static_cast<int>(threadIdx.x);
  const bool here = own < listed;
  const std::uint64_t weight = here ? whole(list.values[own]) : 0;
  const std::int32_t id = here ? list.ids[own] : -1;
  if (here) list.wholes[own] = weight;
  __syncthreads();
  std::uint64_t before = 0, total = 0;
#pragma unroll 4
  for (int i = 0; here && i < listed; ++i) {
    const std::uint64_t added = list.wholes[i];
    before += list.ids[i] < id ? added : 0;
    total += added;
  }
  const std::uint64_t target = choice.target(total);
  if (here && before <= target && target < before + weight) *chosen = id;
}

/// The limit of top_p if the list has all the weight that it is a share of.
struct LimitOfList {
  float top_p;
  __device__ Limits operator()(std::uint64_t total) const {
    const std::uint64_t limit = limit_of(top_p, total);
    return {limit, limit};
  }
};

/// Returns a value that at least `k` logits reach, and seldom many more, if `best` is the largest:
/// the maxima of `k` groups of logits reach it, or of a few more. Each thread passes the maximum of
/// a group.
__device__ inline float bound_of_best(float of_group, std::uint32_t k, float best) {
  const std::uint32_t own = ordered(of_group);
  std::uint32_t low = ordered(-3.402823466e38F), high = ordered(best);
  while (low < high) {
    const std::uint32_t middle = high - (high - low) / 2;
    const auto reaching = static_cast<std::uint32_t>(__syncthreads_count(own >= middle));
    if (reaching < k) {
      high = middle - 1;
    } else {
      low = middle;
      if (reaching <= k + k / 4) break;
    }
  }
  return from_ordered(low);
}

}  // namespace troupe::cuda
