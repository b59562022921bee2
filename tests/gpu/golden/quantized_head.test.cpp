// A head in 8-bit codes on a GPU.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/support/require.hpp"

namespace troupe::golden {
namespace {

struct Found {
  std::vector<float> logits;  ///< of every row of a prompt
  bool is_coded = false;      ///< the head
};

Result<Found> run(const std::string& name, std::optional<bool> quantize_head, std::int32_t chunk) {
  TROUPE_TRY(auto ops, make_golden_ops(DType::bf16, 0, false, WeightEncoding::fp8));
  TROUPE_TRY(const auto loaded,
             load(golden_model(name)->checkpoint, DType::bf16, {}, std::move(ops), false, {}, {},
                  WeightEncoding::fp8, quantize_head));
  Found found;
  Sequence sequence;
  for (int i = 0; i < 200; ++i) sequence.tokens.push_back(1 + i * 7 % 200);
  TROUPE_CHECK(loaded.runner->feed(sequence, chunk, found.logits));
  const testing::Matcher<std::vector<std::string>> has_head = testing::Contains(
      testing::AllOf(testing::HasSubstr("fp8 codes"), testing::ContainsRegex("[:,] head")));
  found.is_coded = testing::Value(loaded.model->kernels(), has_head);
  return found;
}

// Chunks that products of one row, of few and of many take.
TEST(QuantizedHead, has_nearly_the_logits_of_one_that_is_not) {
  for (const std::int32_t chunk : {1, 40, 200}) {
    SCOPED_TRACE(chunk);
    REQUIRE_OK(const Found plain, run("llama-a", {}, chunk));
    REQUIRE_OK(const Found coded, run("llama-a", true, chunk));
    EXPECT_FALSE(plain.is_coded);
    EXPECT_TRUE(coded.is_coded);
    ASSERT_EQ(plain.logits.size(), coded.logits.size());
    const auto [least, most] = std::ranges::minmax(plain.logits);
    double worst = 0.0;
    for (std::size_t i = 0; i < plain.logits.size(); ++i) {
      worst = std::max(worst, std::abs(double{plain.logits[i]} - coded.logits[i]));
    }
    EXPECT_GT(worst, 0.0);
    EXPECT_LT(worst, 0.1 * (most - least));
  }
}

TEST(QuantizedHead, stays_as_it_is_if_it_is_tied) {
  REQUIRE_OK(const Found plain, run("phi3-a", {}, 200));
  REQUIRE_OK(const Found asked, run("phi3-a", true, 200));
  EXPECT_FALSE(asked.is_coded);
  EXPECT_EQ(plain.logits, asked.logits);
}

}  // namespace
}  // namespace troupe::golden
