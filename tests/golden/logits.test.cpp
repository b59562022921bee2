#include <algorithm>
#include <cmath>
#include <iostream>

#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/mesh_ranks.hpp"
#include "tests/support/require.hpp"

namespace troupe::golden {
namespace {

constexpr double tolerance = 1e-3;
constexpr double separated = 2e-3;
constexpr std::size_t top = 20;

class Logits : public testing::TestWithParam<std::string> {};

/// Largest differences between what a model computed and one golden prompt.
struct Differences {
  double last_logits = 0.0;
  double top_logprobs = 0.0;
  double prompt_logprobs = 0.0;
};

void compare_top_ids(const GoldenPrompt& prompt, std::size_t position,
                     const std::vector<double>& logprobs) {
  const float* golden = prompt.top_logprobs.data() + position * top;
  const std::int32_t* ids = prompt.top_ids.data() + position * top;
  std::vector<std::int32_t> order(logprobs.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  std::ranges::partial_sort(order, order.begin() + top, [&](std::int32_t a, std::int32_t b) {
    return logprobs[static_cast<std::size_t>(a)] > logprobs[static_cast<std::size_t>(b)];
  });
  for (std::size_t rank = 0; rank + 1 < top; ++rank) {
    const bool above = rank == 0 || golden[rank - 1] - golden[rank] > separated;
    const bool below = golden[rank] - golden[rank + 1] > separated;
    if (!above || !below) continue;
    EXPECT_EQ(order[rank], ids[rank])
        << prompt.id << ", position " << position << ", rank " << rank;
  }
}

void compare(const GoldenPrompt& prompt, std::span<const float> logits, std::size_t vocab,
             Differences& worst) {
  const std::size_t tokens = prompt.ids.size();
  for (std::size_t position = 0; position < tokens; ++position) {
    const std::span<const float> row = logits.subspan(position * vocab, vocab);
    const std::vector<double> logprobs = log_softmax(row);
    compare_top_ids(prompt, position, logprobs);
    for (std::size_t rank = 0; rank < top; ++rank) {
      const auto id = static_cast<std::size_t>(prompt.top_ids[position * top + rank]);
      const double golden = prompt.top_logprobs[position * top + rank];
      worst.top_logprobs = std::max(worst.top_logprobs, std::abs(logprobs[id] - golden));
    }
    if (position + 1 == tokens) {
      for (std::size_t id = 0; id < vocab; ++id) {
        const double difference = std::abs(double{row[id]} - prompt.last_logits[id]);
        worst.last_logits = std::max(worst.last_logits, difference);
      }
    } else {
      const auto next = static_cast<std::size_t>(prompt.ids[position + 1]);
      const double difference = std::abs(logprobs[next] - prompt.prompt_logprobs[position]);
      worst.prompt_logprobs = std::max(worst.prompt_logprobs, difference);
    }
  }
}

/// Logits of every row of every prompt, one prompt after another.
Result<std::vector<float>> all_logits(Runner& runner, std::span<const GoldenPrompt> prompts) {
  std::vector<float> logits;
  for (const GoldenPrompt& prompt : prompts) {
    Sequence sequence{prompt.ids};
    TROUPE_CHECK(runner.feed(sequence, whole, logits));
    runner.release(sequence);
  }
  return logits;
}

void expect_golden(std::span<const float> logits, std::span<const GoldenPrompt> prompts,
                   std::string_view what) {
  const std::size_t vocab = prompts.front().last_logits.size();
  Differences worst;
  for (const GoldenPrompt& prompt : prompts) {
    ASSERT_EQ(prompt.last_logits.size(), vocab);
    ASSERT_GE(logits.size(), prompt.ids.size() * vocab);
    compare(prompt, logits, vocab, worst);
    logits = logits.subspan(prompt.ids.size() * vocab);
  }
  ASSERT_TRUE(logits.empty());
  std::cout << what << ": largest differences: last logits " << worst.last_logits
            << ", top log-probabilities " << worst.top_logprobs << ", prompt log-probabilities "
            << worst.prompt_logprobs << '\n';
  EXPECT_LE(worst.last_logits, tolerance);
  EXPECT_LE(worst.top_logprobs, tolerance);
  EXPECT_LE(worst.prompt_logprobs, tolerance);
}

TEST_P(Logits, are_those_of_transformers_for_every_prompt) {
  const auto golden = golden_model(GetParam());
  if (!golden) GTEST_SKIP() << missing_model_message(GetParam());
  REQUIRE_OK(const auto prompts, read_prompts(golden->logits));
  ASSERT_FALSE(prompts.empty());
  REQUIRE_OK(const auto loaded, load(golden->checkpoint, DType::f32));
  ASSERT_EQ(prompts.front().last_logits.size(),
            static_cast<std::size_t>(loaded.runner->config().vocab_size));
  REQUIRE_OK(const auto logits, all_logits(*loaded.runner, prompts));
  expect_golden(logits, prompts, GetParam());
}

TEST(LogitsOfRanks, are_those_of_transformers_in_every_arrangement) {
  if (max_golden_ranks() < 2) GTEST_SKIP() << "there is one device";
  const auto golden = golden_model("qwen3moe-a");
  REQUIRE_OK(const auto prompts, read_prompts(golden->logits));
  ASSERT_FALSE(prompts.empty());
  const std::pair<const char*, MeshRanks> ways[] = {
      {"tensor 2", {.shape = {.tensor = 2}}},
      {"pipeline 2", {.shape = {.pipeline = 2}}},
      {"tensor 2, experts over 2", {.shape = {.tensor = 2}, .expert_parallel_size = 2}},
      {"data 2, experts over 2", {.shape = {.data = 2}, .expert_parallel_size = 2}},
  };
  for (const auto& [name, way] : ways) {
    SCOPED_TRACE(name);
    REQUIRE_OK(const auto ranks,
               run_ranks(golden->checkpoint, DType::f32, way,
                         [&](Runner& runner, int) { return all_logits(runner, prompts); }));
    expect_golden(ranks.back(), prompts, name);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Logits, testing::ValuesIn(golden_model_names()),
                         [](const auto& info) { return name_in_test(info.param); });

}  // namespace
}  // namespace troupe::golden
