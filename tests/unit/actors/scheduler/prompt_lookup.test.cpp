#include "actors/scheduler/prompt_lookup.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Tokens = std::vector<std::int32_t>;

Tokens look_up(const Tokens& tokens, std::int32_t longest, std::int32_t count) {
  return PromptLookup(longest).continuation(tokens, count);
}

/// continuation() by brute force, looking at every position.
Tokens look_everywhere(std::span<const std::int32_t> tokens, std::size_t longest,
                       std::size_t count) {
  std::size_t best_length = 0;
  std::size_t best_end = 0;
  for (std::size_t end = tokens.size() - 1; end > 0; --end) {
    std::size_t length = 0;
    while (length < std::min(end, longest) &&
           tokens[end - 1 - length] == tokens[tokens.size() - 1 - length]) {
      ++length;
    }
    if (length <= best_length) continue;
    best_length = length;
    best_end = end;
  }
  if (best_length == 0) return {};
  const auto following = tokens.subspan(best_end);
  const auto taken = following.first(std::min(following.size(), count));
  return {taken.begin(), taken.end()};
}

TEST(PromptLookup, gives_what_followed_the_longest_known_ending) {
  const Tokens tokens = {1, 2, 3, 9, 8, 2, 3, 7, 1, 2, 3};
  EXPECT_THAT(look_up(tokens, 3, 2), ElementsAre(9, 8)) << "after 1 2 3, not 2 3";
  EXPECT_THAT(look_up(tokens, 2, 2), ElementsAre(7, 1)) << "the last time 2 3 came";
}

TEST(PromptLookup, gives_no_more_than_there_is) {
  EXPECT_THAT(look_up({5, 6, 5}, 3, 4), ElementsAre(6, 5));
  EXPECT_THAT(look_up({5, 5}, 3, 4), ElementsAre(5));
}

TEST(PromptLookup, gives_nothing_for_what_never_came) {
  EXPECT_THAT(look_up({1, 2, 3}, 3, 4), IsEmpty());
  EXPECT_THAT(look_up({1}, 3, 4), IsEmpty());
  EXPECT_THAT(look_up({1, 1}, 3, 0), IsEmpty());
}

TEST(PromptLookup, finds_what_a_search_of_all_tokens_finds_as_a_sequence_grows) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    const auto longest = static_cast<std::int32_t>(1 + random() % 8);
    // Few different tokens, so that endings of all lengths recur.
    const unsigned different = 2 + random() % 20;
    PromptLookup lookup(longest);
    Tokens tokens;
    while (tokens.size() < 200) {
      for (unsigned more = 1 + random() % 3; more > 0; --more) {
        tokens.push_back(static_cast<std::int32_t>(random() % different));
      }
      const auto count = static_cast<std::int32_t>(random() % 6);
      ASSERT_EQ(lookup.continuation(tokens, count),
                look_everywhere(tokens, static_cast<std::size_t>(longest),
                                static_cast<std::size_t>(count)))
          << "seed " << seed << ", " << tokens.size() << " tokens, longest " << longest;
    }
  }
}

TEST(PromptLookup, costs_the_same_few_probes_a_step_however_long_the_sequence_is) {
  std::mt19937 random(3);
  Tokens tokens(100'000);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random() % 30'000);
  PromptLookup lookup(3);
  (void)lookup.continuation(tokens, 3);
  const std::uint64_t before = lookup.probes();
  constexpr std::uint64_t steps = 1000;
  for (std::uint64_t i = 0; i < steps; ++i) {
    tokens.push_back(static_cast<std::int32_t>(random() % 30'000));
    (void)lookup.continuation(tokens, 3);
  }
  EXPECT_LT((lookup.probes() - before) / steps, 50U) << "a scan compares 100,000 tokens a step";
}

TEST(PromptLookup, takes_bounded_memory_and_still_knows_the_latest_tokens) {
  Tokens tokens(3 * PromptLookup::max_tokens);
  std::iota(tokens.begin(), tokens.end(), 0);
  PromptLookup lookup(4);
  for (std::size_t known = PromptLookup::max_tokens; known <= tokens.size();
       known += PromptLookup::max_tokens / 4) {
    (void)lookup.continuation(std::span(tokens).first(known), 3);
  }
  EXPECT_LT(lookup.bytes(), 44 * PromptLookup::max_tokens);
  const Tokens ending(tokens.end() - 1000, tokens.end() - 990);
  tokens.insert(tokens.end(), ending.begin(), ending.end());
  const auto last = ending.back();
  EXPECT_THAT(lookup.continuation(tokens, 2), ElementsAre(last + 1, last + 2));
}

}  // namespace
}  // namespace troupe
