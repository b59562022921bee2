// Quantised checkpoints in bf16 on a GPU, which multiplies their codes, beside the same with
// matrices that it has decoded (as deterministic GPUs do) and the numbers in fp32.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/gpu/golden/weight_memory.hpp"
#include "tests/support/mean_difference.hpp"
#include "tests/support/require.hpp"

namespace troupe::golden {
namespace {

using tests::mean_difference;

std::vector<std::string> checkpoints() {
  std::vector<std::string> names;
  for (const char* const folder : {"quantized", "gguf"}) {
    for (const auto& entry : std::filesystem::directory_iterator(data_folder() / folder)) {
      names.push_back(fmt::format("{}/{}", folder, entry.path().filename().string()));
    }
  }
  std::ranges::sort(names);
  return names;
}

/// The recorded prompts of a checkpoint, or of GGUF files, which have none, two of some tokens.
Result<std::vector<GoldenPrompt>> prompts_of(const std::filesystem::path& folder) {
  const auto recorded = folder / "logits.safetensors";
  if (std::filesystem::exists(recorded)) return read_prompts(recorded);
  std::vector<GoldenPrompt> prompts(2);
  for (int i = 0; i < 60; ++i) prompts[i % 3 == 0 ? 1 : 0].ids.push_back(1 + i * 7 % 127);
  return prompts;
}

/// Logits of every row of every prompt: fed at once, and the last ten tokens one by one.
Result<std::vector<float>> all_logits(Runner& runner, std::span<const GoldenPrompt> prompts) {
  std::vector<float> logits;
  for (const GoldenPrompt& prompt : prompts) {
    const std::size_t begin = prompt.ids.size() - std::min<std::size_t>(prompt.ids.size() - 1, 10);
    Sequence sequence{
        {prompt.ids.begin(), prompt.ids.begin() + static_cast<std::ptrdiff_t>(begin)}};
    TROUPE_CHECK(runner.feed(sequence, 512, logits));
    for (std::size_t i = begin; i < prompt.ids.size(); ++i) {
      sequence.tokens.push_back(prompt.ids[i]);
      TROUPE_CHECK(runner.feed(sequence, 512, logits));
    }
    runner.release(sequence);
  }
  return logits;
}

class GpuCodes : public testing::TestWithParam<std::string> {};

TEST_P(GpuCodes, are_as_near_to_exact_logits_as_decoded_matrices) {
  if (max_golden_ranks() < 1) GTEST_SKIP() << "no GPU";
  const auto folder = data_folder() / GetParam();
  REQUIRE_OK(const auto prompts, prompts_of(folder));
  REQUIRE_OK(const auto exact, load(folder, DType::f32));
  REQUIRE_OK(const auto expected, all_logits(*exact.runner, prompts));
  REQUIRE_OK(auto deterministic, make_golden_ops(DType::bf16, 0, true));
  REQUIRE_OK(const auto decoded,
             load(folder, DType::bf16, {}, std::move(deterministic), /*exact_sums=*/true));
  REQUIRE_OK(const auto rounded, all_logits(*decoded.runner, prompts));
  REQUIRE_OK(const auto codes, load(folder, DType::bf16));
  REQUIRE_OK(const auto found, all_logits(*codes.runner, prompts));
  ASSERT_EQ(found.size(), expected.size());
  const double of_codes = mean_difference(found, expected);
  const double of_decoded = mean_difference(rounded, expected);
  std::cout << GetParam() << ": mean difference of codes " << of_codes << ", of decoded matrices "
            << of_decoded << '\n';
  EXPECT_LE(of_codes, 1.5 * of_decoded + 1e-3);
  for (const std::string& line : codes.model->kernels()) std::cout << "  " << line << '\n';
}

TEST_P(GpuCodes, take_the_memory_that_the_footprint_says) {
  if (max_golden_ranks() < 1) GTEST_SKIP() << "no GPU";
  expect_memory_of_footprint(data_folder() / GetParam());
}

INSTANTIATE_TEST_SUITE_P(Golden, GpuCodes, testing::ValuesIn(checkpoints()), [](const auto& info) {
  return name_in_test(std::filesystem::path(info.param).filename());
});

}  // namespace
}  // namespace troupe::golden
