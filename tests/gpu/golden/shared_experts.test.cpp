#include <cmath>
#include <iostream>

#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/support/require.hpp"

// In bf16 the shared MLP of a layer is computed as further experts (ExpertGroup::shared_experts).
// In f32, and with deterministic operations, it is a block beside them.

namespace troupe::golden {
namespace {

class SharedMlps : public testing::TestWithParam<std::string> {
 protected:
  /// The logits of every row of every prompt, in passes of `chunk` tokens.
  Result<std::vector<float>> logits_of(const GoldenModel& golden, DType precision,
                                       bool deterministic, std::int32_t chunk) {
    TROUPE_TRY(const auto prompts, read_prompts(golden.logits));
    TROUPE_TRY(auto ops, make_golden_ops(precision, 0, deterministic));
    TROUPE_TRY(const auto loaded,
               load(golden.checkpoint, precision, {}, std::move(ops), deterministic));
    std::vector<float> logits;
    for (const GoldenPrompt& prompt : prompts) {
      Sequence sequence{prompt.ids};
      TROUPE_CHECK(loaded.runner->feed(sequence, chunk, logits));
      loaded.runner->release(sequence);
    }
    return logits;
  }
};

/// The norm of the difference to `expected`, over its norm.
double error_of(const std::vector<float>& found, const std::vector<float>& expected) {
  double difference = 0.0, all = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(double{found[i]} - expected[i], 2);
    all += std::pow(double{expected[i]}, 2);
  }
  return std::sqrt(difference / all);
}

TEST_P(SharedMlps, of_few_tokens_round_as_little_as_a_block_beside_the_experts) {
  if (max_golden_ranks() < 1) GTEST_SKIP() << "there is no device";
  const auto golden = golden_model(GetParam());
  if (!golden) GTEST_SKIP() << missing_model_message(GetParam());
  REQUIRE_OK(const auto exact, logits_of(*golden, DType::f32, false, 512));
  REQUIRE_OK(const auto apart, logits_of(*golden, DType::bf16, true, 512));
  for (const std::int32_t chunk : {1, 5}) {
    REQUIRE_OK(const auto together, logits_of(*golden, DType::bf16, false, chunk));
    ASSERT_EQ(together.size(), exact.size());
    ASSERT_EQ(apart.size(), exact.size());
    const double error_apart = error_of(apart, exact), error_together = error_of(together, exact);
    std::cout << GetParam() << ", " << chunk << " tokens: error " << error_together << " together, "
              << error_apart << " apart\n";
    EXPECT_LE(error_together, 1.5 * error_apart);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, SharedMlps,
                         testing::Values("deepseek2-a", "deepseek3-a", "glm4moe-a"),
                         [](const auto& info) { return name_in_test(info.param); });

}  // namespace
}  // namespace troupe::golden
