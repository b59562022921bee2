// Chooses a row's token in a block that has the row's summaries and reads few groups of logits
// again: those that may hold candidates, or the one into which the random number falls. If inexact
// sums cannot decide which token the exact ones give, the row is left pending.
#pragma once

#include <climits>
#include <cstdint>

#include "models/ops/cuda/sampling/part_memory.cuh"
#include "models/ops/cuda/sampling/row_summary.cuh"

namespace troupe::cuda {

constexpr int choice_threads = max_listed;
constexpr int choice_warps = choice_threads / 32;
static_assert(max_groups == 2 * choice_threads, "a thread has two groups");

/// A block's shared memory.
struct ChoiceMemory {
  TokenList list;
  double warp_sums[choice_warps];
  double before;  // the sum over the groups before the one found
  std::uint32_t warp_best[choice_warps];
  std::int32_t found;  // a group, or the lowest of several
  std::uint32_t chosen_groups, listed;
  std::int32_t groups[max_listed];
};

/// All threads of a block call the functions together, except for draw_in_group.
template <bool aligned>
class SummarizedRow {
 public:
  __device__ SummarizedRow(ChoiceMemory& memory, const float* logits, std::int32_t vocab,
                           const GroupSummary* summaries)
      : memory_(memory),
        logits_(logits),
        vocab_(vocab),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        first_(2 * static_cast<int>(threadIdx.x)) {
    const int groups = groups_of(vocab);
    if (first_ < groups) {
      const float4 two = *reinterpret_cast<const float4*>(summaries + first_);
      own_[0] = {two.x, two.y};
      if (first_ + 1 < groups) own_[1] = {two.z, two.w};
    }
    if (threadIdx.x == 0) memory_.found = INT_MAX;
  }

  /// Returns the largest logit; NaN if one is not finite.
  __device__ float find_max() {
    const std::uint32_t own = max(ordered(own_[0].max), ordered(own_[1].max));
    const std::uint32_t of_warp = __reduce_max_sync(~0U, own);
    if (lane_ == 0) memory_.warp_best[warp_] = of_warp;
    const bool bad = own_[0].max != own_[0].max || own_[1].max != own_[1].max;
    if (__syncthreads_or(bad) != 0) return __int_as_float(0x7fffffff);
    std::uint32_t best = 0;
    for (const std::uint32_t one : memory_.warp_best) best = max(best, one);
    return from_ordered(best);
  }

  /// One thread writes the first id whose logit is `max`.
  __device__ void choose_first(float max, std::int32_t* chosen) {
    if (own_[0].max == max || own_[1].max == max) {
      atomicMin(&memory_.found, own_[0].max == max ? first_ : first_ + 1);
    }
    __syncthreads();
    if (warp_ != 0) return;
    for (int i = memory_.found * group_tokens + lane_; i - lane_ < vocab_; i += 32) {
      const std::uint32_t have = __ballot_sync(~0U, i < vocab_ && logits_[i] == max);
      if (have == 0) continue;
      if (lane_ == 0) *chosen = i + __ffs(have) - 1;
      return;
    }
  }

  /// Returns a value that at least `k` logits reach, if `max` is the largest.
  __device__ float bound_of(std::int32_t k, float max) {
    return bound_of_best(fmaxf(own_[0].max, own_[1].max), static_cast<std::uint32_t>(k), max);
  }

  /// Lists all logits of at least `bound`; returns how many, or that they are too many.
  __device__ std::uint32_t list(float bound) {
    if (threadIdx.x == 0) memory_.chosen_groups = memory_.listed = 0;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (own_[j].max < bound) continue;
      const std::uint32_t at = atomicAdd(&memory_.chosen_groups, 1U);
      if (at < max_listed) memory_.groups[at] = first_ + j;
    }
    __syncthreads();
    const std::uint32_t groups = memory_.chosen_groups;  // each has at least one such logit
    if (groups > max_listed) return groups;
    constexpr std::uint32_t at_once = 2;
    for (std::uint32_t first = warp_; first < groups; first += at_once * choice_warps) {
      int begin[at_once];
      float4 fours[at_once][2];
#pragma unroll
      for (std::uint32_t g = 0; g < at_once; ++g) {
        const std::uint32_t at = first + g * choice_warps;
        begin[g] = at < groups ? memory_.groups[at] * group_tokens + lane_ * 4 : vocab_;
        fours[g][0] = four_logits<aligned>(logits_, begin[g], vocab_);
        fours[g][1] = four_logits<aligned>(logits_, begin[g] + 128, vocab_);
      }
#pragma unroll
      for (std::uint32_t g = 0; g < at_once; ++g) {
        list_four(fours[g][0], begin[g], bound);
        list_four(fours[g][1], begin[g] + 128, bound);
      }
    }
    __syncthreads();
    return memory_.listed;
  }

  /// Returns the inexact sum of all weights, given the largest logit `max`.
  __device__ double sum(float max, float slope) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      weights_[j] = static_cast<double>(own_[j].sum) *
                    approximate_weight(__fadd_rn(own_[j].max, -max), slope);
    }
    const double running = running_sum(weights_[0] + weights_[1]);
    if (lane_ == 31) memory_.warp_sums[warp_] = running;
    __syncthreads();
    const double before = __shfl_up_sync(~0U, running, 1);
    double total = 0.0;
    for (int warp = 0; warp < choice_warps; ++warp) {
      if (warp == warp_) {
        begin_ = total + (lane_ == 0 ? 0.0 : before);
        end_ = total + running;
      }
      total += memory_.warp_sums[warp];
    }
    return total;
  }

  /// After sum(): returns the group in which the running sum exceeds `target`; INT_MAX: none.
  __device__ int find_group(double target) {
    const bool second = target >= begin_ + weights_[0];
    const int own = second ? first_ + 1 : first_;
    // Running sums of doubles may decrease by a rounding: then two ranges contain it.
    if (target >= begin_ && target < end_) atomicMin(&memory_.found, own);
    __syncthreads();
    if (memory_.found == own) memory_.before = second ? begin_ + weights_[0] : begin_;
    __syncthreads();
    return memory_.found;
  }

  /// Called by one warp, after find_group: returns the id at which the running sum exceeds
  /// `target`, or -1 unless it does so by at least `margin` on either side.
  __device__ std::int32_t draw_in_group(double target, double margin, float max, float slope) {
    const int i = memory_.found * group_tokens + lane_ * 8;
    const float4 a = four_logits<aligned>(logits_, i, vocab_);
    const float4 b = four_logits<aligned>(logits_, i + 4, vocab_);
    const float logits[] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    double own[8], of_lane = 0.0;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      own[j] = approximate_weight(__fadd_rn(logits[j], -max), slope);
      of_lane += own[j];
    }
    double reached = memory_.before + (running_sum(of_lane) - of_lane);
    std::int32_t id = -1;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const double end = reached + own[j];
      if (target >= reached + margin && target + margin < end) id = i + j;
      reached = end;
    }
    return __reduce_max_sync(~0U, id);
  }

 private:
  __device__ void list_four(const float4& four, int i, float bound) {
    const float values[] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (i + j >= vocab_ || values[j] < bound) continue;
      const std::uint32_t at = atomicAdd(&memory_.listed, 1U);
      if (at >= max_listed) continue;
      memory_.list.values[at] = values[j];
      memory_.list.ids[at] = i + j;
    }
  }

  /// The inclusive prefix sum over the lanes.
  __device__ double running_sum(double value) {
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const double other = __shfl_up_sync(~0U, value, offset);
      if (lane_ >= offset) value += other;
    }
    return value;
  }

  ChoiceMemory& memory_;
  const float* logits_;
  std::int32_t vocab_;
  int warp_, lane_;
  int first_;  // of two groups
  GroupSummary own_[2] = {{-INFINITY, 0.0F}, {-INFINITY, 0.0F}};
  double weights_[2] = {};
  double begin_ = 0.0, end_ = 0.0;  // between these running sums
};

/// Samples from what top_k or min_p keeps; false: too many candidates.
template <bool aligned>
__device__ bool choose_from_few(SummarizedRow<aligned>& row, ChoiceMemory& memory,
                                const Choice& choice, std::int32_t* chosen) {
  const float top_p = choice.row.top_p, min_p = choice.row.min_p;
  float bound = -INFINITY;
  if (choice.row.top_k > 0) bound = row.bound_of(choice.row.top_k, choice.max);
  if (min_p > 0.0F) {
    // Slightly low, so that no rounding drops a token that its weight would keep.
    const float log_min_p = logf(min_p) - 1e-3F;
    bound = fmaxf(bound, choice.max + choice.row.temperature * log_min_p - 1e-3F);
  }
  const std::uint32_t listed = row.list(bound);
  if (listed > max_listed) return false;
  const int count = static_cast<int>(listed);
  weigh_list(memory.list, count, choice);
  if (top_p < 1.0F) cut_list(memory.list, count, LimitOfList{top_p});
  draw_from_list(memory.list, count, choice, chosen);
  return true;
}

/// Samples from what top_p alone keeps; false: that is uncertain, or too many tokens.
template <bool aligned>
__device__ bool choose_from_nucleus(SummarizedRow<aligned>& row, ChoiceMemory& memory,
                                    const Choice& choice, std::int32_t* chosen) {
  const double sum = row.sum(choice.max, slope_of(choice.row.temperature));
  const float top_p = choice.row.top_p;
  const auto limit = [&](double total) { return limit_of(top_p, __double2ull_rn(total * 0x1p44)); };
  const Limits limits{limit(sum * (1.0 - max_offset)), limit(sum * (1.0 + max_offset))};
  // Tokens below a certain share of the dropped weight are usually too few to matter. Shares are
  // below 1: the largest logit is listed.
  float share = fminf((1.0F - top_p) * static_cast<float>(sum), 15.0F);
  for (int tries = 0; tries < 3; ++tries) {
    share *= 1.0F / 16;
    if (share < 1e-12F) return false;
    const float bound = choice.max + choice.row.temperature * logf(share);
    const std::uint32_t listed = row.list(bound);
    if (listed > max_listed) return false;
    const int count = static_cast<int>(listed);
    weigh_list(memory.list, count, choice);
    // Logits on either side of the bound may weigh the same, or the lower one more by the error of
    // weights: a list that has one of them does not tell which goes first.
    const float max_of_others = weight_of(bound, choice.max, choice.scale) * (1.0F + 1e-6F);
    const auto limits_of = [&](std::uint64_t) { return limits; };
    if (!cut_list(memory.list, count, limits_of, max_of_others)) continue;
    draw_from_list(memory.list, count, choice, chosen);
    return true;
  }
  return false;
}

/// Samples from all tokens; false, in the first warp: it is uncertain which.
template <bool aligned>
__device__ bool choose_from_all(SummarizedRow<aligned>& row, const Choice& choice,
                                std::int32_t* chosen) {
  const float slope = slope_of(choice.row.temperature);
  const double sum = row.sum(choice.max, slope);
  const std::uint64_t random = random_bits(choice.row.seed, choice.row.position, choice.row.choice);
  const double target = __ull2double_rn(random) * 0x1p-64 * sum;
  if (row.find_group(target) == INT_MAX) return false;
  if (threadIdx.x / 32 != 0) return true;
  const std::int32_t id = row.draw_in_group(target, max_offset * sum, choice.max, slope);
  if (id >= 0 && threadIdx.x == 0) *chosen = id;
  return id >= 0;
}

/// After summarize_rows, one block per row: samples its token, or adds the row to the pending list.
template <bool aligned>
__global__ void __launch_bounds__(choice_threads, 2)
    choose_from_summaries(const float* logits, std::int32_t vocab, const SampledRow* rows,
                          SummaryMemory* summaries, std::int32_t* ids) {
  __shared__ ChoiceMemory memory;
  begin_early_kernel();
  Choice choice{rows[blockIdx.x], 0.0F, 0.0F};
  const SampledRow& row = choice.row;
  std::int32_t* const chosen = ids + row.row;
  const auto put_off = [&] {
    if (threadIdx.x != 0) return;
    summaries->pending.rows[atomicAdd(&summaries->pending.count, 1U)] =
        static_cast<std::int32_t>(blockIdx.x);
  };
  if (!is_summarized(row)) return put_off();
  const GroupSummary* const own = summaries->groups + blockIdx.x * group_stride(groups_of(vocab));
  SummarizedRow<aligned> groups(memory, logits + std::int64_t{row.row} * vocab, vocab, own);
  choice.max = groups.find_max();
  if (choice.max != choice.max) {
    if (threadIdx.x == 0) *chosen = -1;
    return;
  }
  if (is_greedy(row)) return groups.choose_first(choice.max, chosen);
  choice.scale = __fdiv_rn(1.0F, row.temperature);
  bool done = false;
  if (row.top_k > 0 || row.min_p > 0.0F) {
    done = choose_from_few(groups, memory, choice, chosen);
  } else if (choice.max < -1e38F) {
    done = false;  // padding after the row weighs something
  } else if (row.top_p < 1.0F) {
    done = choose_from_nucleus(groups, memory, choice, chosen);
  } else {
    done = choose_from_all(groups, choice, chosen);
  }
  if (!done) put_off();
}

}  // namespace troupe::cuda
