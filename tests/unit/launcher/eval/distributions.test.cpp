#include "launcher/eval/distributions.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/require.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

TokenLogprobs distribution(const std::vector<std::pair<std::int32_t, double>>& best_first) {
  TokenLogprobs made;
  for (const auto& [id, probability] : best_first) {
    made.top_ids.push_back(id);
    made.top_logprobs.push_back(static_cast<float>(std::log(probability)));
  }
  return made;
}

TEST(Distributions, have_the_divergence_of_whole_ones) {
  const auto reference = distribution({{0, 0.5}, {1, 0.3}, {2, 0.2}});
  const auto found = distribution({{1, 0.6}, {0, 0.3}, {2, 0.1}});
  const double expected =
      0.3 * std::log(0.3 / 0.5) + 0.6 * std::log(0.6 / 0.3) + 0.1 * std::log(0.1 / 0.2);
  const PositionDifference difference = compare_position(reference, found);
  EXPECT_NEAR(difference.kl, expected, 1e-6);
  EXPECT_FALSE(difference.same_top);
  EXPECT_NEAR(compare_position(found, found).kl, 0.0, 1e-9);
  EXPECT_TRUE(compare_position(found, found).same_top);
}

TEST(Distributions, take_tokens_that_only_one_lists_as_one) {
  const auto reference = distribution({{0, 0.5}, {1, 0.3}});
  const auto found = distribution({{0, 0.6}, {2, 0.2}});
  const double expected = 0.6 * std::log(0.6 / 0.5) + 0.4 * std::log(0.4 / 0.5);
  EXPECT_NEAR(compare_position(reference, found).kl, expected, 1e-6);
}

TEST(Distributions, are_kept_in_a_file_in_any_order) {
  const tests::TemporaryFolder folder;
  REQUIRE_OK(auto file, DistributionFile::create(folder.path() / "f", 2));
  const std::vector<TokenLogprobs> late = {distribution({{3, 0.5}, {4, 0.25}})};
  const std::vector<TokenLogprobs> early = {distribution({{0, 0.5}, {1, 0.25}}),
                                            distribution({{2, 0.5}, {1, 0.25}})};
  ASSERT_TRUE(file.put(2, late).ok());
  ASSERT_TRUE(file.put(0, early).ok());
  REQUIRE_OK(const auto found, file.get(1, 2));
  EXPECT_EQ(found[0].top_ids, early[1].top_ids);
  EXPECT_EQ(found[1].top_ids, late[0].top_ids);
  EXPECT_EQ(found[1].top_logprobs, late[0].top_logprobs);
  EXPECT_FALSE(file.put(0, std::vector<TokenLogprobs>{distribution({{0, 1.0}})}).ok());
}

}  // namespace
}  // namespace troupe
