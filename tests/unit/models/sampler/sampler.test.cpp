#include "models/sampler/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::ElementsAre;

SamplingParams params_of(float temperature, std::int32_t top_k, float top_p, float min_p) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  params.min_p = min_p;
  params.seed = 7;
  return params;
}

std::vector<float> random_logits(std::size_t vocab, std::uint32_t seed, float spread) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> logits(vocab);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

/// Counts each id in `draws` draws.
std::map<std::int32_t, int> counts_of(const std::vector<float>& logits,
                                      const SamplingParams& params, int draws) {
  SamplerScratch scratch;
  std::map<std::int32_t, int> counts;
  for (int i = 0; i < draws; ++i) {
    ++counts[sample(logits, params, static_cast<std::uint64_t>(i), 0, scratch).id];
  }
  return counts;
}

std::vector<std::int32_t> keys(const std::map<std::int32_t, int>& counts) {
  std::vector<std::int32_t> ids;
  ids.reserve(counts.size());
  for (const auto& [id, count] : counts) ids.push_back(id);
  return ids;
}

/// A naive implementation of vLLM V1's order, in double with full sorts: id -> probability.
std::map<std::int32_t, double> reference(const std::vector<float>& logits,
                                         const SamplingParams& params) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto value = [&](std::int32_t id) {
    return static_cast<double>(logits[static_cast<std::size_t>(id)]) /
           static_cast<double>(params.temperature);
  };
  std::stable_sort(ids.begin(), ids.end(), [&](auto a, auto b) { return value(a) > value(b); });
  const double max = value(ids[0]);
  const auto weight = [&](std::int32_t id) { return std::exp(value(id) - max); };
  const double least = static_cast<double>(params.min_p);
  std::erase_if(ids, [&](auto id) { return weight(id) < least; });
  const auto k = static_cast<std::size_t>(params.top_k);
  if (k > 0 && ids.size() > k) {
    const double kth = value(ids[k - 1]);
    std::erase_if(ids, [&](auto id) { return value(id) < kth; });
  }
  double total = 0;
  for (const auto id : ids) total += weight(id);
  double ascending = 0;
  while (params.top_p < 1.0F && ids.size() > 1) {
    ascending += weight(ids.back()) / total;
    if (ascending > 1.0 - static_cast<double>(params.top_p)) break;
    ids.pop_back();
  }
  total = 0;
  for (const auto id : ids) total += weight(id);
  std::map<std::int32_t, double> found;
  for (const auto id : ids) found[id] = weight(id) / total;
  return found;
}

TEST(Sampler, takes_the_largest_logit_when_greedy_and_the_lowest_id_of_equals) {
  SamplerScratch scratch;
  std::vector<float> logits(300, -1.0F);
  logits[299] = logits[77] = logits[130] = 2.5F;
  EXPECT_EQ(sample(logits, params_of(0.0F, 0, 1.0F, 0.0F), 0, 0, scratch).id, 77);
  EXPECT_EQ(sample(logits, params_of(9e-6F, 50, 0.5F, 0.1F), 5, 3, scratch).id, 77);
  logits[64] = 2.6F;
  EXPECT_EQ(sample(logits, params_of(0.0F, 0, 1.0F, 0.0F), 0, 0, scratch).id, 64);
}

TEST(Sampler, takes_the_only_token_of_a_vocabulary_of_one) {
  SamplerScratch scratch;
  const std::vector<float> logits{-3.0F};
  for (const auto& params : {params_of(0.0F, 0, 1.0F, 0.0F), params_of(1.0F, 0, 1.0F, 0.0F),
                             params_of(1.0F, 1, 0.1F, 0.5F)}) {
    EXPECT_EQ(sample(logits, params, 0, 0, scratch).id, 0);
  }
  EXPECT_NEAR(token_logprobs(logits, 0, 5, scratch).logprob, 0.0F, 1e-6F);
}

TEST(Sampler, fails_on_logits_that_are_not_finite_wherever_they_are) {
  SamplerScratch scratch;
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (const std::size_t at : {0, 17, 63, 64, 130}) {
      std::vector<float> logits(131, 0.5F);
      logits[at] = bad;
      for (const float temperature : {0.0F, 1.0F}) {
        const auto token = sample(logits, params_of(temperature, 0, 1.0F, 0.0F), 0, 0, scratch);
        EXPECT_TRUE(token.failed) << bad << " at " << at;
        EXPECT_EQ(token.id, -1);
      }
    }
  }
}

TEST(Sampler, gives_the_same_token_for_the_same_key_whatever_was_sampled_before) {
  const auto logits = random_logits(1000, 1, 2.0F);
  const auto other = random_logits(5000, 2, 3.0F);
  const auto params = params_of(0.8F, 40, 0.95F, 0.01F);
  SamplerScratch fresh;
  SamplerScratch used;
  for (std::uint64_t position = 0; position < 200; ++position) {
    sample(other, params_of(1.0F, 0, 0.9F, 0.0F), position, 1, used);
    EXPECT_EQ(sample(logits, params, position, 3, fresh).id,
              sample(logits, params, position, 3, used).id)
        << "at position " << position;
  }
}

TEST(Sampler, draws_anew_for_another_seed_choice_or_position) {
  const std::vector<float> logits(1000, 0.0F);
  SamplerScratch scratch;
  auto params = params_of(1.0F, 0, 1.0F, 0.0F);
  const auto base = sample(logits, params, 5, 0, scratch).id;
  EXPECT_NE(sample(logits, params, 6, 0, scratch).id, base);
  EXPECT_NE(sample(logits, params, 5 + (std::uint64_t{1} << 32), 0, scratch).id, base);
  EXPECT_NE(sample(logits, params, 5, 1, scratch).id, base);
  params.seed += std::uint64_t{1} << 32;
  EXPECT_NE(sample(logits, params, 5, 0, scratch).id, base);
}

TEST(Sampler, keeps_what_equals_the_kth_best) {
  const std::vector<float> logits{1.0F, 3.0F, 2.0F, 2.0F, 2.0F, 0.0F};
  EXPECT_THAT(keys(counts_of(logits, params_of(1.0F, 2, 1.0F, 0.0F), 2000)),
              ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(keys(counts_of(logits, params_of(1.0F, 1, 1.0F, 0.0F), 200)), ElementsAre(1));
}

TEST(Sampler, drops_the_tail_whose_sum_is_at_most_one_minus_top_p_and_keeps_the_crossing_token) {
  // Probabilities 0.5, 0.25, 0.125, 0.0625, 0.0625.
  const float ln2 = std::log(2.0F);
  const std::vector<float> logits{-4 * ln2, -ln2, -4 * ln2, -2 * ln2, -3 * ln2};
  EXPECT_THAT(keys(counts_of(logits, params_of(1.0F, 0, 0.49F, 0.0F), 500)), ElementsAre(1));
  EXPECT_THAT(keys(counts_of(logits, params_of(1.0F, 0, 0.51F, 0.0F), 500)), ElementsAre(1, 3));
  EXPECT_THAT(keys(counts_of(logits, params_of(1.0F, 0, 0.74F, 0.0F), 500)), ElementsAre(1, 3));
  EXPECT_THAT(keys(counts_of(logits, params_of(1.0F, 0, 0.76F, 0.0F), 500)), ElementsAre(1, 3, 4));
  EXPECT_THAT(keys(counts_of(logits, params_of(1.0F, 0, 0.93F, 0.0F), 500)),
              ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(keys(counts_of(logits, params_of(1.0F, 0, 0.95F, 0.0F), 900)),
              ElementsAre(0, 1, 2, 3, 4));
}

TEST(Sampler, always_keeps_the_best_token_however_small_top_p_is) {
  const std::vector<float> flat(500, 1.25F);
  EXPECT_THAT(keys(counts_of(flat, params_of(1.0F, 0, 1e-30F, 0.0F), 50)), ElementsAre(0));
  auto peaked = flat;
  peaked[321] = 1.5F;
  EXPECT_THAT(keys(counts_of(peaked, params_of(1.0F, 0, 1e-6F, 0.0F), 50)), ElementsAre(321));
}

TEST(Sampler, applies_min_p_before_top_p) {
  // Probabilities 0.4, 0.3, 0.1 x 3. min_p 0.5 keeps 0.4 and 0.3, that is 0.571 and 0.429: top_p
  // 0.57 then keeps one. In the other order both would stay.
  const std::vector<float> logits{std::log(0.1F), std::log(0.4F), std::log(0.1F), std::log(0.3F),
                                  std::log(0.1F)};
  EXPECT_THAT(keys(counts_of(logits, params_of(1.0F, 0, 0.57F, 0.5F), 500)), ElementsAre(1));
  EXPECT_THAT(keys(counts_of(logits, params_of(1.0F, 0, 0.58F, 0.5F), 500)), ElementsAre(1, 3));
}

TEST(Sampler, survives_temperatures_from_tiny_to_huge) {
  const auto logits = random_logits(2000, 3, 30.0F);
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  EXPECT_THAT(keys(counts_of(logits, params_of(2e-5F, 0, 1.0F, 0.0F), 100)), ElementsAre(best));
  EXPECT_THAT(keys(counts_of(logits, params_of(2e-5F, 20, 0.9F, 0.1F), 100)), ElementsAre(best));
  EXPECT_GT(counts_of(logits, params_of(1e6F, 0, 1.0F, 0.0F), 3000).size(), 1400U);
  const std::vector<float> wide{std::numeric_limits<float>::lowest(), 0.0F,
                                std::numeric_limits<float>::max()};
  EXPECT_THAT(keys(counts_of(wide, params_of(1.0F, 0, 1.0F, 0.0F), 100)), ElementsAre(2));
}

TEST(Sampler, agrees_with_full_sorts_in_double_on_random_logits_and_settings) {
  const std::uint32_t seed = 20240611;
  std::mt19937 random(seed);
  const auto pick = [&](auto... options) {
    const float list[] = {static_cast<float>(options)...};
    return list[random() % std::size(list)];
  };
  for (int round = 0; round < 200; ++round) {
    const std::size_t vocab = 1 + random() % 700;
    const auto logits = random_logits(vocab, static_cast<std::uint32_t>(random()), pick(0.1, 1, 5));
    const auto params =
        params_of(pick(0.3, 0.7, 1, 1.7), static_cast<std::int32_t>(pick(0, 1, 5, 50, 5000)),
                  pick(0.1, 0.5, 0.9, 0.99, 1), pick(0, 0.01, 0.2, 1));
    const auto expected = reference(logits, params);
    const auto counts = counts_of(logits, params, 300);
    for (const auto& [id, count] : counts) {
      EXPECT_TRUE(expected.contains(id))
          << "seed " << seed << " round " << round << ": id " << id << " is outside the support";
    }
    for (const auto& [id, probability] : expected) {
      if (probability < 0.08) continue;  // 300 draws miss it once in 7e10
      EXPECT_TRUE(counts.contains(id)) << "seed " << seed << " round " << round << ": id " << id
                                       << " never came, p " << probability;
    }
  }
}

TEST(TokenLogprobs, are_the_log_softmax_with_the_best_first) {
  SamplerScratch scratch;
  for (const std::size_t vocab : {1, 20, 64, 65, 4096, 151936}) {
    const auto logits = random_logits(vocab, 5, 4.0F);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    const auto exact = [&](std::int32_t id) {
      return static_cast<double>(logits[static_cast<std::size_t>(id)]) - std::log(sum);
    };
    std::vector<std::int32_t> order(vocab);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return exact(a) > exact(b); });
    const auto token = static_cast<std::int32_t>(vocab / 2);
    const auto found = token_logprobs(logits, token, 20, scratch);
    EXPECT_NEAR(static_cast<double>(found.logprob), exact(token), 1e-5);
    ASSERT_EQ(found.top_ids.size(), std::min<std::size_t>(20, vocab));
    ASSERT_EQ(found.top_logprobs.size(), found.top_ids.size());
    for (std::size_t i = 0; i < found.top_ids.size(); ++i) {
      EXPECT_EQ(found.top_ids[i], order[i]) << "place " << i << " of " << vocab;
      EXPECT_NEAR(static_cast<double>(found.top_logprobs[i]), exact(order[i]), 1e-5);
    }
  }
}

TEST(TokenLogprobs, put_the_lower_id_first_among_equals_and_give_none_when_none_are_asked_for) {
  SamplerScratch scratch;
  const std::vector<float> logits(200, 0.0F);
  EXPECT_THAT(token_logprobs(logits, 100, 3, scratch).top_ids, ElementsAre(0, 1, 2));
  EXPECT_TRUE(token_logprobs(logits, 100, 0, scratch).top_ids.empty());
  EXPECT_NEAR(token_logprobs(logits, 100, 0, scratch).logprob, -std::log(200.0F), 1e-5F);
}

}  // namespace
}  // namespace troupe
