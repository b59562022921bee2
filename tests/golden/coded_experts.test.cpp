// Experts of codes that ranks share: each a part of every expert, which may begin inside a group or
// a block, or whole experts.
#include "tests/golden/support/coded_experts.hpp"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/mesh_ranks.hpp"
#include "tests/golden/support/numbers_of_codes.hpp"
#include "tests/support/require.hpp"
#include "tests/support/same_bits.hpp"

namespace troupe::golden {
namespace {

Result<std::vector<float>> all_logits(Runner& runner) { return logits_of_prompts(runner, 40, 10); }

class CodedExperts : public testing::TestWithParam<CodedExpertsCase> {
 protected:
  void SetUp() override {
    const auto written = write_coded_experts(GetParam(), folder_);
    ASSERT_TRUE(written.ok()) << written.error().message;
  }

  tests::TemporaryFolder folder_;
};

TEST_P(CodedExperts, stay_codes_and_have_the_logits_of_their_numbers) {
  REQUIRE_OK(const auto loaded, load(folder_.path(), DType::f32));
  const std::vector<std::string> kernels = loaded.model->kernels();
  EXPECT_THAT(kernels, testing::Contains(testing::AllOf(testing::HasSubstr("codes"),
                                                        testing::HasSubstr("gate_proj+up_proj"))));
  EXPECT_THAT(kernels, testing::Contains(testing::AllOf(testing::HasSubstr("codes"),
                                                        testing::HasSubstr("down_proj"))));
  REQUIRE_OK(const auto found, all_logits(*loaded.runner));
  REQUIRE_OK(const auto numbers, load_numbers(folder_.path(), /*rounds=*/false));
  REQUIRE_OK(const auto expected, all_logits(*numbers.runner));
  ASSERT_EQ(found.size(), expected.size());
  double worst = 0.0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    worst = std::max(worst, std::abs(double{found[i]} - expected[i]));
  }
  std::cout << GetParam().name << ": largest difference " << worst << '\n';
  EXPECT_LE(worst, 1e-3);
}

TEST_P(CodedExperts, have_the_same_bits_however_ranks_share_them) {
  REQUIRE_OK(const auto loaded, load(folder_.path(), DType::f32));
  REQUIRE_OK(const auto alone, all_logits(*loaded.runner));
  for (const ExpertArrangement& way : expert_arrangements) {
    for (const bool sequence_parallel : {false, true}) {
      if (sequence_parallel && way.shape.tensor == 1) continue;
      const MeshRanks ranks{.shape = way.shape,
                            .expert_parallel_size = way.expert_parallel_size,
                            .sequence_parallel = sequence_parallel};
      REQUIRE_OK(const auto found,
                 run_ranks(folder_.path(), DType::f32, ranks,
                           [](Runner& runner, int) { return all_logits(runner); }));
      for (const auto& of_rank : found) expect_same_bits(of_rank, alone, way.name);
    }
  }
}

// Codes that are made as weights are loaded: of groups and rows, of which a rank reads a part.
TEST(EncodedExperts, have_the_same_bits_however_ranks_share_them) {
  using enum WeightEncoding;
  const auto folder = golden_model("qwen3moe-a")->checkpoint;
  for (const auto& [name, encoding] : {std::pair("fp8", fp8), std::pair("int8", int8),
                                       std::pair("w4a16", int4), std::pair("w8a8", w8a8)}) {
    REQUIRE_OK(auto ops, make_golden_ops(DType::f32));
    REQUIRE_OK(const auto loaded,
               load(folder, DType::f32, {}, std::move(ops), false, {}, {}, encoding));
    EXPECT_THAT(loaded.model->kernels(),
                testing::Contains(testing::AllOf(testing::HasSubstr("codes"),
                                                 testing::HasSubstr("gate_proj+up_proj"))));
    REQUIRE_OK(const auto alone, all_logits(*loaded.runner));
    for (const ExpertArrangement& way : expert_arrangements) {
      REQUIRE_OK(const auto found,
                 run_ranks(folder, DType::f32,
                           {.shape = way.shape,
                            .expert_parallel_size = way.expert_parallel_size,
                            .encoding = encoding},
                           [](Runner& runner, int) { return all_logits(runner); }));
      for (const auto& of_rank : found) {
        expect_same_bits(of_rank, alone, std::string(name) + ", " + way.name);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, CodedExperts, testing::ValuesIn(coded_experts_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace troupe::golden
