// Experts of codes in bf16, on one GPU and on several that share them, beside their numbers in
// fp32.
#include "tests/golden/support/coded_experts.hpp"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/mesh_ranks.hpp"
#include "tests/gpu/golden/weight_memory.hpp"
#include "tests/support/mean_difference.hpp"
#include "tests/support/require.hpp"

namespace troupe::golden {
namespace {

using tests::mean_difference;

Result<std::vector<float>> all_logits(Runner& runner) { return logits_of_prompts(runner, 200, 20); }

/// What rounding may do, here and there by another choice of experts; wrong experts do more.
double limit(double of_other_rounding, const std::vector<float>& expected) {
  const std::vector<float> zeros(expected.size(), 0.0F);
  return 1.5 * of_other_rounding + 0.01 * mean_difference(expected, zeros);
}

/// How far bf16 is from `expected` where codes are decoded and sums are exact.
Result<double> rounding_of_decoded(const std::filesystem::path& checkpoint,
                                   const std::vector<float>& expected) {
  TROUPE_TRY(auto deterministic, make_golden_ops(DType::bf16, 0, true));
  TROUPE_TRY(const auto decoded,
             load(checkpoint, DType::bf16, {}, std::move(deterministic), /*exact_sums=*/true));
  TROUPE_TRY(const std::vector<float> rounded, all_logits(*decoded.runner));
  return mean_difference(rounded, expected);
}

class GpuCodedExperts : public testing::TestWithParam<CodedExpertsCase> {
 protected:
  void SetUp() override {
    if (max_golden_ranks() < 1) GTEST_SKIP() << "no GPU";
    const auto written = write_coded_experts(GetParam(), folder_);
    ASSERT_TRUE(written.ok()) << written.error().message;
  }

  tests::TemporaryFolder folder_;
};

TEST_P(GpuCodedExperts, stay_codes_and_are_as_near_to_exact_logits_as_decoded_ones) {
  REQUIRE_OK(const auto exact, load(folder_.path(), DType::f32));
  REQUIRE_OK(const auto expected, all_logits(*exact.runner));
  REQUIRE_OK(const double of_decoded, rounding_of_decoded(folder_.path(), expected));
  REQUIRE_OK(const auto codes, load(folder_.path(), DType::bf16));
  if (is_packed(weight_format(GetParam().codes.scheme.coding).kind)) {
    const auto kernels = codes.model->kernels();
    for (const char* matrix : {"gate_proj+up_proj", "down_proj"}) {
      EXPECT_THAT(kernels, testing::Contains(testing::AllOf(testing::HasSubstr("4 codes"),
                                                            testing::HasSubstr(matrix))));
    }
  }
  REQUIRE_OK(const auto found, all_logits(*codes.runner));
  const double of_codes = mean_difference(found, expected);
  std::cout << GetParam().name << ": mean difference of codes " << of_codes
            << ", of decoded matrices " << of_decoded << ", at most " << limit(of_decoded, expected)
            << '\n';
  EXPECT_LE(of_codes, limit(of_decoded, expected));
}

TEST_P(GpuCodedExperts, take_the_memory_that_the_footprint_says) {
  expect_memory_of_footprint(folder_.path());
}

TEST_P(GpuCodedExperts, are_as_near_however_ranks_share_them) {
  if (max_golden_ranks() < 2) GTEST_SKIP() << "there is one device";
  REQUIRE_OK(const auto exact, load(folder_.path(), DType::f32));
  REQUIRE_OK(const auto expected, all_logits(*exact.runner));
  REQUIRE_OK(const auto loaded, load(folder_.path(), DType::bf16));
  REQUIRE_OK(const auto alone, all_logits(*loaded.runner));
  const double of_one = mean_difference(alone, expected);
  // One GPU may round to what is nearer by chance.
  REQUIRE_OK(const double of_decoded, rounding_of_decoded(folder_.path(), expected));
  for (const ExpertArrangement& way : expert_arrangements) {
    if (way.shape.world_size() > max_golden_ranks()) continue;
    REQUIRE_OK(const auto ranks,
               run_ranks(folder_.path(), DType::bf16,
                         {.shape = way.shape, .expert_parallel_size = way.expert_parallel_size},
                         [](Runner& runner, int) { return all_logits(runner); }));
    for (const auto& of_rank : ranks) {
      const double of_ranks = mean_difference(of_rank, expected);
      EXPECT_LE(of_ranks, limit(std::max(of_one, of_decoded), expected)) << way.name;
    }
    std::cout << GetParam().name << ", " << way.name << ": mean difference "
              << mean_difference(ranks.back(), expected) << ", on one GPU " << of_one << '\n';
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, GpuCodedExperts, testing::ValuesIn(coded_experts_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace troupe::golden
