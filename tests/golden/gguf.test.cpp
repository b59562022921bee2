// GGUF files beside the numbers that the format's library makes of them
// (tests/data/golden/record_gguf.py).
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/checkpoint/checkpoint.hpp"
#include "models/checkpoint/safetensors.hpp"
#include "tests/golden/support/coded_experts.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/mesh_ranks.hpp"
#include "tests/support/require.hpp"
#include "tests/support/same_bits.hpp"

namespace troupe::golden {
namespace {

class Gguf : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { folder_ = data_folder() / "gguf" / GetParam(); }

  std::filesystem::path folder_;
};

Result<std::vector<float>> gguf_logits(Runner& runner) { return logits_of_prompts(runner, 60, 20); }

/// All elements as f32, unrounded.
HostTensor in_f32(const StoredTensor& stored, const Shape& shape) {
  const std::int64_t rows = shape.rank() == 1 ? 1 : shape[0];
  const std::int64_t columns = shape[shape.rank() - 1];
  StoredTensor matrix = stored;
  if (shape.rank() == 1) matrix.view = stored.view.reshaped({1, columns});
  HostTensor numbers(DType::f32, shape);
  copy_rows({.matrix = matrix, .rows = {0, rows}, .cols = {0, columns}}, 0, rows, DType::f32,
            numbers->data());
  return numbers;
}

TEST_P(Gguf, has_the_numbers_of_the_library) {
  REQUIRE_OK(const auto checkpoint, Checkpoint::open(folder_));
  REQUIRE_OK(const auto numbers, SafetensorsFile::open(folder_ / "numbers.safetensors"));
  for (const std::string& name : numbers.names()) {
    SCOPED_TRACE(name);
    REQUIRE_OK(const Tensor expected, numbers.tensor(name));
    REQUIRE_OK(const auto stored, checkpoint.stored_weight(name, expected.shape()));
    EXPECT_TRUE(checkpoint.contains(name));
    const HostTensor found = in_f32(stored, expected.shape());
    for (std::int64_t i = 0; i < expected.elements(); ++i) {
      ASSERT_EQ(found->as<float>()[i], expected.as<float>()[i]) << "element " << i;
    }
  }
}

TEST_P(Gguf, has_the_logits_of_its_numbers) {
  REQUIRE_OK(const auto checkpoint, Checkpoint::open(folder_));
  REQUIRE_OK(const auto numbers, SafetensorsFile::open(folder_ / "numbers.safetensors"));
  std::map<std::string, HostTensor, std::less<>> all;  // as they are held
  for (const std::string& name : numbers.names()) {
    REQUIRE_OK(const Tensor exact, numbers.tensor(name));
    REQUIRE_OK(const auto stored, checkpoint.stored_weight(name, exact.shape()));
    HostTensor held(DType::f32, exact.shape());
    for (std::int64_t i = 0; i < exact.elements(); ++i) {
      const float number = exact.as<float>()[i];
      held->as<float>()[i] = stored.dtype() == DType::bf16 ? to_float(to_bfloat16(number)) : number;
    }
    all.emplace(name, std::move(held));
  }
  REQUIRE_OK(const auto substituted,
             load_substituted(folder_, DType::f32, [&](std::string_view name) {
               const auto at = all.find(name);
               return at == all.end() ? std::nullopt : std::optional(at->second.view());
             }));
  REQUIRE_OK(const auto expected, gguf_logits(*substituted.runner));
  REQUIRE_OK(const auto loaded, load(folder_, DType::f32));
  REQUIRE_OK(const auto found, gguf_logits(*loaded.runner));
  ASSERT_EQ(found.size(), expected.size());
  const auto [least, most] = std::ranges::minmax(expected);
  double worst = 0.0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    worst = std::max(worst, std::abs(double{found[i]} - expected[i]));
  }
  std::cout << GetParam() << ": largest difference " << worst << " of logits from " << least
            << " to " << most << '\n';
  // Zero points that are no whole numbers are bf16, of codes of 5 bits from 16 to 32 then with an
  // error of up to 1/16, as are the numbers beside those of K's blocks.
  const double tolerance = GetParam() == "qwen3-q4_k_m"   ? 5e-3
                           : GetParam() == "mixtral-q5_0" ? 2e-2
                                                          : 1e-4;
  EXPECT_LE(worst, tolerance * (most - least));
  EXPECT_THAT(loaded.model->kernels(),
              testing::Contains(testing::ContainsRegex("(int4|int8) codes, groups of")));
}

TEST_P(Gguf, has_the_same_bits_however_ranks_share_it) {
  if (max_golden_ranks() < 2) GTEST_SKIP() << "there is one device";
  REQUIRE_OK(const auto loaded, load(folder_, DType::f32));
  REQUIRE_OK(const auto alone, gguf_logits(*loaded.runner));
  const bool has_experts = GetParam() == "qwen3moe-q4_0" || GetParam() == "mixtral-q5_0";
  for (const int expert_parallel_size : {1, 2}) {
    if (expert_parallel_size == 2 && !has_experts) continue;
    const MeshRanks ranks{.shape = {.tensor = 2}, .expert_parallel_size = expert_parallel_size};
    REQUIRE_OK(const auto found, run_ranks(folder_, DType::f32, ranks, [](Runner& runner, int) {
                 return gguf_logits(runner);
               }));
    for (const auto& of_rank : found) {
      expect_same_bits(of_rank, alone, fmt::format("experts over {}", expert_parallel_size));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Gguf,
                         testing::Values("llama-q8_0", "mixtral-q5_0", "qwen3moe-q4_0",
                                         "qwen3-q4_k_m"),
                         [](const auto& info) { return name_in_test(info.param); });

}  // namespace
}  // namespace troupe::golden
