#include <iostream>

#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/support/require.hpp"

namespace troupe::golden {
namespace {

class Perplexity : public testing::TestWithParam<std::string> {};

Result<double> mean_nll(const GoldenModel& golden, DType precision,
                        const std::vector<std::vector<std::int32_t>>& windows) {
  TROUPE_TRY(const LoadedModel loaded, load(golden.checkpoint, precision));
  double sum = 0.0;
  for (const auto& window : windows) {
    TROUPE_TRY(const double nll, window_nll(*loaded.runner, window));
    sum += nll;
  }
  return sum / static_cast<double>(windows.size());
}

TEST_P(Perplexity, of_a_hundred_windows_is_that_of_transformers) {
  const auto model = golden_model(GetParam());
  if (!model) GTEST_SKIP() << missing_model_message(GetParam());
  REQUIRE_OK(const auto windows, read_windows());
  ASSERT_EQ(windows.size(), 100U);
  REQUIRE_OK(const auto golden, read_perplexity(GetParam()));
  REQUIRE_OK(const double exact, mean_nll(*model, DType::f32, windows));
  REQUIRE_OK(const double rounded, mean_nll(*model, DType::bf16, windows));
  std::cout << GetParam() << ": NLL " << std::fixed << exact << " in f32 (expected "
            << golden.nll_f32 << "), " << rounded << " in bf16 (expected " << golden.nll_bf16
            << ")\n";
  EXPECT_NEAR(exact, golden.nll_f32, 1e-4);
  EXPECT_NEAR(rounded, golden.nll_bf16, 3e-3);
}

INSTANTIATE_TEST_SUITE_P(Golden, Perplexity,
                         testing::Values("fable-moe", "fable-draft", "fable-dense"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace troupe::golden
