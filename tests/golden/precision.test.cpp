#include <algorithm>
#include <cmath>
#include <iostream>

#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/support/require.hpp"

namespace troupe::golden {
namespace {

class Bf16 : public testing::TestWithParam<std::string> {};

/// How closely two runs over the same tokens agree.
struct Agreement {
  std::size_t rows = 0;
  std::size_t same_best = 0;
  double difference = 0.0;  // sum over all logits
  std::size_t logits = 0;
};

void add(std::span<const float> exact, std::span<const float> rounded, std::size_t vocab,
         Agreement& agreement) {
  for (std::size_t row = 0; row + vocab <= exact.size(); row += vocab) {
    const auto a = exact.subspan(row, vocab);
    const auto b = rounded.subspan(row, vocab);
    ++agreement.rows;
    agreement.same_best += argmax(a) == argmax(b) ? 1 : 0;
    for (std::size_t i = 0; i < vocab; ++i) agreement.difference += std::abs(double{a[i]} - b[i]);
    agreement.logits += vocab;
  }
}

TEST_P(Bf16, agrees_with_f32_on_the_golden_answers) {
  const auto golden = golden_model(GetParam());
  if (!golden) GTEST_SKIP() << missing_model_message(GetParam());
  REQUIRE_OK(const auto answers, read_answers(golden->greedy));
  REQUIRE_OK(const auto exact, load(golden->checkpoint, DType::f32));
  REQUIRE_OK(const auto rounded, load(golden->checkpoint, DType::bf16));
  const auto vocab = static_cast<std::size_t>(exact.runner->config().vocab_size);

  Agreement agreement;
  constexpr std::size_t max_answers = 12;
  for (std::size_t i = 0; i < std::min(answers.size(), max_answers); ++i) {
    Sequence first{answers[i].prompt};
    first.tokens.insert(first.tokens.end(), answers[i].output.begin(), answers[i].output.end());
    Sequence second = first;
    std::vector<float> expected, found;
    ASSERT_TRUE(exact.runner->feed(first, 512, expected).ok());
    ASSERT_TRUE(rounded.runner->feed(second, 512, found).ok());
    add(expected, found, vocab, agreement);
    exact.runner->release(first);
    rounded.runner->release(second);
  }
  const double same =
      static_cast<double>(agreement.same_best) / static_cast<double>(agreement.rows);
  const double mean = agreement.difference / static_cast<double>(agreement.logits);
  std::cout << GetParam() << ": best token agrees in " << same << " of " << agreement.rows
            << " rows, mean difference " << mean << '\n';
  // Rounded index scores choose other keys of this tiny model, whose random weights score alike.
  const bool chooses_keys =
      exact.runner->config().latent && exact.runner->config().latent->index_top_k > 0;
  EXPECT_GE(same, chooses_keys ? 0.75 : golden->is_tiny ? 0.85 : 0.97);
  EXPECT_LE(mean, golden->is_tiny ? 0.25 : 0.05);
  EXPECT_GT(mean, 0.0) << "bf16 computed what f32 computes";
}

INSTANTIATE_TEST_SUITE_P(Golden, Bf16, testing::ValuesIn(golden_model_names()),
                         [](const auto& info) { return name_in_test(info.param); });

}  // namespace
}  // namespace troupe::golden
