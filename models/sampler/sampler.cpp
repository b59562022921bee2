#include "models/sampler/sampler.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>

#include "models/sampler/philox.hpp"

namespace troupe {
namespace {

constexpr std::size_t block = 64;  ///< logits under one entry of block_max
constexpr std::size_t lanes = 16;  ///< independent accumulators, which let reductions vectorise
constexpr float greedy_below = 1e-5F;
constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// e^x for x <= 0, 0 below -87: relative error under 3e-7. Cody-Waite reduction to |r| <= ln(2)/2
/// and the Taylor polynomial of degree 7 (remainder under 6e-9). Plain additions and
/// multiplications, so that loops over it vectorise and every machine gets the same bits.
inline float exp_negative(float x) {
  constexpr float log2_e = 1.44269504F;
  constexpr float ln2_high = 0.693359375F;  // 9 bits: its product with n is exact
  constexpr float ln2_low = -2.12194440e-4F;
  constexpr float round_to_integer = 12582912.0F;  // 1.5 * 2^23
  const float shifted = x * log2_e + round_to_integer;
  const float n = shifted - round_to_integer;
  const float r = (x - n * ln2_high) - n * ln2_low;
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(shifted) << 23;  // n in the exponent
  const std::uint32_t value = std::bit_cast<std::uint32_t>(p) + bits;
  // All ones below -87, where the result above is void. Integer operations: g++ 12 turns float
  // comparisons into branches, which prevents vectorisation.
  const std::int32_t magnitude = std::bit_cast<std::int32_t>(x) & 0x7fffffff;
  const std::int32_t room = std::bit_cast<std::int32_t>(87.0F) - magnitude;
  const auto too_low = static_cast<std::uint32_t>(room >> 31);
  return std::bit_cast<float>(value & ~too_low);
}

/// Weights are added as integer multiples of 2^-44, rounded to nearest: their sums are exact, so
/// that every order of addition on any device gives the same. A vocabulary of 2^20 tokens does not
/// overflow.
using Sum = std::uint64_t;
constexpr double sum_unit = 0x1p-44;

/// `weight` in [0, 1] as an integer: an ulp of doubles from 256 on is 2^-44.
inline Sum whole(float weight) {
  constexpr double shift = 256.0;
  return std::bit_cast<Sum>(static_cast<double>(weight) + shift) - std::bit_cast<Sum>(shift);
}

struct Scan {
  float max = minus_infinity;
  bool finite = true;
};

/// One pass over the logits: finds the largest of each block, the largest of all, and if all are
/// finite.
Scan scan(std::span<const float> logits, std::vector<float>& block_max) {
  constexpr std::uint32_t exponent = 0x7f800000;
  block_max.resize((logits.size() + block - 1) / block);
  Scan found;
  std::uint32_t bad = 0;
  const auto is_bad = [](float x) -> std::uint32_t {
    return (std::bit_cast<std::uint32_t>(x) & exponent) == exponent ? 1U : 0U;
  };
  for (std::size_t b = 0; b < block_max.size(); ++b) {
    const float* const first = logits.data() + b * block;
    const std::size_t count = std::min(block, logits.size() - b * block);
    float largest = first[0];
    if (count == block) {
      std::array<float, lanes> max;
      std::array<std::uint32_t, lanes> flags{};
      std::copy_n(first, lanes, max.begin());
      for (std::size_t i = 0; i < block; i += lanes) {
        for (std::size_t j = 0; j < lanes; ++j) {
          const float x = first[i + j];
          max[j] = max[j] < x ? x : max[j];
          flags[j] |= is_bad(x);
        }
      }
      for (std::size_t j = 0; j < lanes; ++j) {
        largest = std::max(largest, max[j]);
        bad |= flags[j];
      }
    } else {
      for (std::size_t i = 0; i < count; ++i) {
        largest = std::max(largest, first[i]);
        bad |= is_bad(first[i]);
      }
    }
    block_max[b] = largest;
    found.max = std::max(found.max, largest);
  }
  found.finite = bad == 0;
  return found;
}

/// The sum of e^((x - max) * scale) over all logits; stores the terms in `weights` if given.
Sum exp_sum(std::span<const float> logits, float max, float scale, float* weights) {
  std::array<Sum, lanes> sums{};
  const std::size_t vectors = logits.size() / lanes * lanes;
  std::array<float, lanes> terms;
  for (std::size_t i = 0; i < vectors; i += lanes) {
    for (std::size_t j = 0; j < lanes; ++j) terms[j] = exp_negative((logits[i + j] - max) * scale);
    for (std::size_t j = 0; j < lanes; ++j) sums[j] += whole(terms[j]);
    if (weights != nullptr) std::copy_n(terms.begin(), lanes, weights + i);
  }
  Sum sum = 0;
  for (std::size_t i = vectors; i < logits.size(); ++i) {
    const float term = exp_negative((logits[i] - max) * scale);
    sum += whole(term);
    if (weights != nullptr) weights[i] = term;
  }
  for (const Sum lane : sums) sum += lane;
  return sum;
}

/// Collects the logits >= `threshold` in values and ids, in the order of ids. Blocks whose largest
/// is below it are skipped unread.
void collect(std::span<const float> logits, float threshold, SamplerScratch& scratch) {
  std::size_t blocks = 0;
  for (const float largest : scratch.block_max) blocks += largest >= threshold ? 1 : 0;
  scratch.values.resize(blocks * block);
  scratch.ids.resize(blocks * block);
  std::size_t found = 0;
  for (std::size_t b = 0; b < scratch.block_max.size(); ++b) {
    if (scratch.block_max[b] < threshold) continue;
    const std::size_t end = std::min(logits.size(), (b + 1) * block);
    for (std::size_t i = b * block; i < end; ++i) {
      scratch.values[found] = logits[i];
      scratch.ids[found] = static_cast<std::int32_t>(i);
      found += logits[i] >= threshold ? 1 : 0;
    }
  }
  scratch.values.resize(found);
  scratch.ids.resize(found);
}

/// A bound that at least `k` logits reach: the k-th largest of the blocks' maxima.
float bound_of_best(std::size_t k, SamplerScratch& scratch) {
  if (k > scratch.block_max.size()) return minus_infinity;
  scratch.values.assign(scratch.block_max.begin(), scratch.block_max.end());
  const auto nth = scratch.values.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(scratch.values.begin(), nth, scratch.values.end(), std::greater<>());
  return *nth;
}

/// Drops candidates that do not satisfy `keep(index)`, keeping their order and weights.
template <class Keep>
void filter(SamplerScratch& scratch, Keep keep) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < scratch.ids.size(); ++i) {
    if (!keep(i)) continue;
    scratch.values[kept] = scratch.values[i];
    scratch.ids[kept] = scratch.ids[i];
    if (i < scratch.weights.size()) scratch.weights[kept] = scratch.weights[i];
    ++kept;
  }
  scratch.values.resize(kept);
  scratch.ids.resize(kept);
  if (scratch.weights.size() > kept) scratch.weights.resize(kept);
}

/// Keeps the k best of the candidates and all that equal the k-th.
void keep_best(std::size_t k, SamplerScratch& scratch) {
  if (scratch.values.size() <= k) return;
  // The weights' buffer is free here: weights are computed later for the remaining candidates.
  scratch.weights.assign(scratch.values.begin(), scratch.values.end());
  const auto nth = scratch.weights.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(scratch.weights.begin(), nth, scratch.weights.end(), std::greater<>());
  const float least = *nth;
  scratch.weights.clear();
  filter(scratch, [&](std::size_t i) { return scratch.values[i] >= least; });
}

/// Finds the least likely candidate in `selection` that top_p keeps, if the candidates before them
/// sum to `before`: the last at which the sum of the likelier ones is below `limit`. Each round
/// halves the candidates and sums one half.
std::size_t find_crossing(Sum before, Sum limit, SamplerScratch& scratch) {
  const auto& weights = scratch.weights;
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    const float x = weights[static_cast<std::size_t>(a)];
    const float y = weights[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  };
  auto first = scratch.selection.begin();
  auto last = scratch.selection.end();
  while (last - first > 1) {
    const auto middle = first + (last - first) / 2;
    std::nth_element(first, middle, last, likelier);
    Sum half = 0;
    for (auto it = first; it != middle; ++it) half += whole(weights[static_cast<std::size_t>(*it)]);
    if (before + half < limit) {
      before += half;
      first = middle;
    } else {
      last = middle;
    }
  }
  return static_cast<std::size_t>(*first);
}

/// Keeps the candidates that top_p does not drop. A histogram over the weights' leading bits
/// (sixteen buckets per octave) finds the bucket of the last one kept; only that bucket is searched
/// closely.
void keep_nucleus(double top_p, SamplerScratch& scratch) {
  const auto bucket_of = [](float weight) { return std::bit_cast<std::uint32_t>(weight) >> 19; };
  auto& buckets = scratch.bucket_sums;
  buckets.assign(bucket_of(1.0F) + 1, 0);
  for (const float weight : scratch.weights) buckets[bucket_of(weight)] += whole(weight);
  const Sum total = std::accumulate(buckets.begin(), buckets.end(), Sum{0});

  // An integer is below a product when it is below the next integer.
  const Sum limit =
      std::max(static_cast<Sum>(std::ceil(top_p * static_cast<double>(total))), Sum{1});
  Sum before = 0;
  std::size_t crossing_bucket = buckets.size() - 1;  // bucket of the best token, whose weight is 1
  for (std::size_t i = crossing_bucket; i-- > 0;) {
    if (buckets[i] == 0) continue;
    const Sum sum = before + buckets[crossing_bucket];
    if (sum >= limit) break;
    before = sum;
    crossing_bucket = i;
  }
  scratch.selection.clear();
  for (std::size_t i = 0; i < scratch.weights.size(); ++i) {
    if (bucket_of(scratch.weights[i]) == crossing_bucket) {
      scratch.selection.push_back(static_cast<std::int32_t>(i));
    }
  }
  const std::size_t crossing = find_crossing(before, limit, scratch);
  const float least = scratch.weights[crossing];
  const std::int32_t last_id = scratch.ids[crossing];
  filter(scratch, [&](std::size_t i) {
    return scratch.weights[i] > least || (scratch.weights[i] == least && scratch.ids[i] <= last_id);
  });
}

std::uint64_t random_bits(std::uint64_t seed, std::uint64_t position, std::uint32_t choice) {
  const auto bits = philox4x32_10(
      {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), choice, 0},
      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return std::uint64_t{bits[0]} << 32 | bits[1];
}

/// Returns the index at which the running sum of the weights exceeds their sum times `random` /
/// 2^64.
std::size_t draw(std::span<const float> weights, std::uint64_t random) {
  // Sums over blocks first, so that the walk reads only one block.
  const auto sum_of = [&](std::size_t first) {
    std::array<Sum, lanes> sums{};
    const std::size_t end = std::min(weights.size(), first + block);
    std::size_t i = first;
    for (; i + lanes <= end; i += lanes) {
      for (std::size_t j = 0; j < lanes; ++j) sums[j] += whole(weights[i + j]);
    }
    Sum sum = 0;
    for (; i < end; ++i) sum += whole(weights[i]);
    for (const Sum lane : sums) sum += lane;
    return sum;
  };
  Sum total = 0;
  for (std::size_t first = 0; first < weights.size(); first += block) total += sum_of(first);
  __extension__ using Wide = unsigned __int128;
  const Sum target = static_cast<Sum>((Wide{random} * total) >> 64);  // below the total
  Sum before = 0;
  std::size_t first = 0;
  for (; first + block < weights.size(); first += block) {
    const Sum sum = sum_of(first);
    if (before + sum > target) break;
    before += sum;
  }
  std::size_t i = first;
  for (; i + 1 < weights.size(); ++i) {
    before += whole(weights[i]);
    if (before > target) break;
  }
  return i;
}

/// Chooses from logits that are finite or masked (-inf), `max` the largest of them;
/// scratch.block_max is theirs.
SampledToken choose(std::span<const float> logits, float max, const SamplingParams& params,
                    std::uint64_t position, std::uint32_t choice, SamplerScratch& scratch) {
  if (params.temperature < greedy_below) {
    const auto best = std::find(scratch.block_max.begin(), scratch.block_max.end(), max);
    const auto first = logits.begin() + (best - scratch.block_max.begin()) * std::ptrdiff_t{block};
    return {static_cast<std::int32_t>(std::find(first, logits.end(), max) - logits.begin()), false};
  }

  const float scale = 1.0F / params.temperature;
  const std::uint64_t random = random_bits(params.seed, position, choice);
  const bool cut_min_p = params.min_p > 0.0F;
  const bool cut_top_k = params.top_k > 0 && static_cast<std::size_t>(params.top_k) < logits.size();
  const bool cut_top_p = params.top_p < 1.0F;

  if (!cut_min_p && !cut_top_k && !cut_top_p) {
    scratch.weights.resize(logits.size());
    exp_sum(logits, max, scale, scratch.weights.data());
    return {static_cast<std::int32_t>(draw(scratch.weights, random)), false};
  }

  float threshold = std::numeric_limits<float>::lowest();  // masked tokens are no candidates
  if (cut_top_k) {
    threshold = std::max(threshold, bound_of_best(static_cast<std::size_t>(params.top_k), scratch));
  }
  if (cut_min_p) {
    // Slightly low, so that the math library's rounding decides nothing: the weights below do.
    const float log_min_p = std::log(params.min_p) - 1e-3F;
    threshold = std::max(threshold, max + params.temperature * log_min_p - 1e-3F);
  }
  collect(logits, threshold, scratch);
  scratch.weights.clear();
  if (cut_top_k) keep_best(static_cast<std::size_t>(params.top_k), scratch);
  scratch.weights.resize(scratch.values.size());
  exp_sum(scratch.values, max, scale, scratch.weights.data());
  if (cut_min_p) {
    filter(scratch, [&](std::size_t i) { return scratch.weights[i] >= params.min_p; });
  }
  if (cut_top_p) keep_nucleus(static_cast<double>(params.top_p), scratch);
  return {scratch.ids[draw(scratch.weights, random)], false};
}

}  // namespace

SampledToken sample(std::span<const float> logits, const SamplingParams& params,
                    std::uint64_t position, std::uint32_t choice, SamplerScratch& scratch) {
  assert(!logits.empty());
  const auto [max, finite] = scan(logits, scratch.block_max);
  if (!finite) return {-1, true};
  return choose(logits, max, params, position, choice, scratch);
}

SampledToken sample(std::span<const float> logits, const SamplingParams& params,
                    const TokenHistory& history, SamplerScratch& scratch) {
  const std::uint64_t position = history.prompt.size() + history.output.size();
  if (!edits_logits(params)) {
    return sample(logits, params, position, params.choice, scratch);
  }
  assert(!logits.empty());
  if (!scan(logits, scratch.block_max).finite) return {-1, true};
  const std::span<const float> edited = scratch.editor.edit(logits, params, history);
  const float max = scan(edited, scratch.block_max).max;
  if (!std::isfinite(max)) return {-1, true};  // all are masked, or a penalty overflowed
  return choose(edited, max, params, position, params.choice, scratch);
}

float log_probability(float logit, float max, std::uint64_t sum) {
  const double log_sum = static_cast<double>(max) + std::log(static_cast<double>(sum) * sum_unit);
  return static_cast<float>(static_cast<double>(logit) - log_sum);
}

TokenLogprobs token_logprobs(std::span<const float> logits, std::int32_t token, std::int32_t n,
                             SamplerScratch& scratch) {
  assert(token >= 0 && static_cast<std::size_t>(token) < logits.size());
  const float max = scan(logits, scratch.block_max).max;
  const Sum sum = exp_sum(logits, max, 1.0F, nullptr);
  const auto logprob = [&](float logit) { return log_probability(logit, max, sum); };
  TokenLogprobs found;
  const float own = logits[static_cast<std::size_t>(token)];
  found.logprob = logprob(own);
  found.rank = 1 + static_cast<std::int32_t>(
                       std::ranges::count_if(logits, [own](float logit) { return logit > own; }));
  const std::size_t best = std::min(static_cast<std::size_t>(std::max(n, 0)), logits.size());
  if (best == 0) return found;

  collect(logits, bound_of_best(best, scratch), scratch);
  scratch.selection.resize(scratch.ids.size());
  std::iota(scratch.selection.begin(), scratch.selection.end(), 0);
  std::partial_sort(scratch.selection.begin(),
                    scratch.selection.begin() + static_cast<std::ptrdiff_t>(best),
                    scratch.selection.end(), [&](std::int32_t a, std::int32_t b) {
                      const float x = scratch.values[static_cast<std::size_t>(a)];
                      const float y = scratch.values[static_cast<std::size_t>(b)];
                      return x > y || (x == y && a < b);
                    });
  found.top_ids.reserve(best);
  found.top_logprobs.reserve(best);
  for (std::size_t i = 0; i < best; ++i) {
    const auto index = static_cast<std::size_t>(scratch.selection[i]);
    found.top_ids.push_back(scratch.ids[index]);
    found.top_logprobs.push_back(logprob(scratch.values[index]));
  }
  return found;
}

}  // namespace troupe
