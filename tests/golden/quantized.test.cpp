// Checkpoints that the formats' own libraries made: llm-compressor 0.14 (ct-*), GPTQModel 7.7
// (gptq-*) and AutoAWQ 0.2.9 (awq-*), of llama-a and qwen3moe-a; the codes of mxfp4-experts are
// gptoss-a's in OpenAI's layout; troupe-* are `launcher quantize`'s, whose codes compressed-tensors
// made into numbers (tests/data/golden/record_quantized.py). The logits are transformers' in fp32 with the numbers that the
// library, for mxfp4-experts transformers, makes of its own codes.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/mesh_ranks.hpp"
#include "tests/support/require.hpp"

namespace troupe::golden {
namespace {

constexpr std::int32_t whole = 512;  // rows of a pass that takes any prompt at once
constexpr double tolerance = 1e-3;

std::filesystem::path folder_of(const std::string& name) {
  return data_folder() / "quantized" / name;
}

std::vector<std::string> checkpoints() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(data_folder() / "quantized")) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
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

/// The largest difference in a log-probability of a prompt's token, or in a last logit.
double difference(std::span<const float> logits, std::span<const GoldenPrompt> prompts) {
  const std::size_t vocab = prompts.front().last_logits.size();
  double worst = 0.0;
  for (const GoldenPrompt& prompt : prompts) {
    for (std::size_t position = 0; position < prompt.ids.size(); ++position) {
      const std::span<const float> row = logits.subspan(position * vocab, vocab);
      if (position + 1 < prompt.ids.size()) {
        const auto next = static_cast<std::size_t>(prompt.ids[position + 1]);
        const double found = log_softmax(row)[next];
        worst = std::max(worst, std::abs(found - prompt.prompt_logprobs[position]));
        continue;
      }
      for (std::size_t id = 0; id < vocab; ++id) {
        worst = std::max(worst, std::abs(double{row[id]} - prompt.last_logits[id]));
      }
    }
    logits = logits.subspan(prompt.ids.size() * vocab);
  }
  return worst;
}

class Quantized : public testing::TestWithParam<std::string> {};

TEST_P(Quantized, have_the_logits_of_their_numbers) {
  REQUIRE_OK(const auto prompts, read_prompts(folder_of(GetParam()) / "logits.safetensors"));
  ASSERT_FALSE(prompts.empty());
  REQUIRE_OK(const auto loaded, load(folder_of(GetParam()), DType::f32));
  REQUIRE_OK(const auto logits, all_logits(*loaded.runner, prompts));
  const double worst = difference(logits, prompts);
  std::cout << GetParam() << ": largest difference " << worst << '\n';
  EXPECT_LE(worst, tolerance);
}

// The 160 columns of a row-parallel matrix are 2.5 groups of 32 for each rank, the 48 of an
// expert's 1.5 of 16.
TEST_P(Quantized, have_them_on_ranks_whose_slices_begin_inside_a_group) {
  if (max_golden_ranks() < 2) GTEST_SKIP() << "there is one device";
  REQUIRE_OK(const auto prompts, read_prompts(folder_of(GetParam()) / "logits.safetensors"));
  REQUIRE_OK(const auto ranks,
             run_ranks(folder_of(GetParam()), DType::f32, {.shape = {.tensor = 2}},
                       [&](Runner& runner, int) { return all_logits(runner, prompts); }));
  EXPECT_LE(difference(ranks.back(), prompts), tolerance);
}

TEST(QuantizedExperts, have_them_with_experts_over_ranks) {
  if (max_golden_ranks() < 2) GTEST_SKIP() << "there is one device";
  for (const std::string& name : checkpoints()) {
    if (name != "ct-mixed-moe" && name != "mxfp4-experts") continue;
    SCOPED_TRACE(name);
    REQUIRE_OK(const auto prompts, read_prompts(folder_of(name) / "logits.safetensors"));
    const MeshRanks way{.shape = {.tensor = 2}, .expert_parallel_size = 2};
    REQUIRE_OK(const auto ranks,
               run_ranks(folder_of(name), DType::f32, way,
                         [&](Runner& runner, int) { return all_logits(runner, prompts); }));
    EXPECT_LE(difference(ranks.back(), prompts), tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Quantized, testing::ValuesIn(checkpoints()),
                         [](const auto& info) { return name_in_test(info.param); });

}  // namespace
}  // namespace troupe::golden
