// Checkpoints that the formats' own libraries made: llm-compressor 0.14 (ct-*), GPTQModel 7.7
// (gptq-*) and AutoAWQ 0.2.9 (awq-*), of llama-a and qwen3moe-a; the codes of mxfp4-experts are
// gptoss-a's in OpenAI's layout; troupe-* are `launcher quantize`'s, whose codes compressed-tensors
// made into numbers (tests/data/golden/record_quantized.py). The logits are transformers' in fp32
// with the numbers that the library, for mxfp4-experts transformers, makes of its own codes:
// rounded to bf16 or f16. CPUs multiply with codes, whose numbers are not rounded: these logits are
// compared with those of the unrounded numbers in fp32, and the library's with those of decoded
// matrices.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/golden/support/coded_experts.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/mesh_ranks.hpp"
#include "tests/golden/support/numbers_of_codes.hpp"
#include "tests/support/require.hpp"
#include "tests/support/same_bits.hpp"

namespace troupe::golden {
namespace {

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
Result<std::vector<float>> all_logits(Runner& runner, std::span<const GoldenPrompt> prompts,
                                      std::int32_t chunk = whole) {
  std::vector<float> logits;
  for (const GoldenPrompt& prompt : prompts) {
    Sequence sequence{prompt.ids};
    TROUPE_CHECK(runner.feed(sequence, chunk, logits));
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

Result<std::vector<float>> logits_of_numbers(const std::filesystem::path& folder, bool rounds,
                                             std::span<const GoldenPrompt> prompts) {
  TROUPE_TRY(const LoadedModel loaded, load_numbers(folder, rounds));
  return all_logits(*loaded.runner, prompts);
}

class Quantized : public testing::TestWithParam<std::string> {};

TEST_P(Quantized, have_the_logits_of_their_numbers) {
  const auto folder = folder_of(GetParam());
  REQUIRE_OK(const auto prompts, read_prompts(folder / "logits.safetensors"));
  ASSERT_FALSE(prompts.empty());
  REQUIRE_OK(const auto loaded, load(folder, DType::f32));
  REQUIRE_OK(const auto logits, all_logits(*loaded.runner, prompts));
  if (!multiplies_codes(loaded)) {
    const double worst = difference(logits, prompts);
    std::cout << GetParam() << ": largest difference " << worst << '\n';
    EXPECT_LE(worst, tolerance);
    return;
  }
  REQUIRE_OK(const auto rounded, logits_of_numbers(folder, true, prompts));
  REQUIRE_OK(const auto exact, logits_of_numbers(folder, false, prompts));
  double worst = 0.0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    worst = std::max(worst, std::abs(double{logits[i]} - exact[i]));
  }
  std::cout << GetParam() << ": largest difference of decoded numbers from the library's "
            << difference(rounded, prompts) << ", of codes from their numbers " << worst
            << ", of codes from the library's rounded numbers " << difference(logits, prompts)
            << '\n';
  EXPECT_LE(difference(rounded, prompts), tolerance);
  EXPECT_LE(worst, tolerance);
}

// The 160 columns of a row-parallel matrix are 2.5 groups of 32 for each rank, the 48 of an
// expert's 1.5 of 16.
TEST_P(Quantized, have_them_on_ranks_whose_slices_begin_inside_a_group) {
  if (max_golden_ranks() < 2) GTEST_SKIP() << "there is one device";
  const auto folder = folder_of(GetParam());
  REQUIRE_OK(const auto prompts, read_prompts(folder / "logits.safetensors"));
  const auto on_ranks = [&](const MeshShape& shape) {
    return run_ranks(folder, DType::f32, {.shape = shape},
                     [&](Runner& runner, int) { return all_logits(runner, prompts); });
  };
  REQUIRE_OK(const auto ranks, on_ranks({.tensor = 2}));
  REQUIRE_OK(const auto loaded, load(folder, DType::f32));
  if (!multiplies_codes(loaded)) {
    EXPECT_LE(difference(ranks.back(), prompts), tolerance);
    return;
  }
  REQUIRE_OK(const auto expected, all_logits(*loaded.runner, prompts));
  expect_same_bits(ranks.back(), expected, "tensor 2");
  REQUIRE_OK(const auto stages, on_ranks({.pipeline = 2, .tensor = 2}));
  expect_same_bits(stages.back(), expected, "tensor 2 x pipeline 2");
  REQUIRE_OK(const auto one_by_one, all_logits(*loaded.runner, prompts, 1));
  expect_same_bits(one_by_one, expected, "passes of a token");
}

TEST(QuantizedExperts, have_them_with_experts_over_ranks) {
  for (const std::string& name : checkpoints()) {
    const bool has_experts = name.find("moe") != std::string::npos || name == "mxfp4-experts";
    if (!has_experts) continue;
    REQUIRE_OK(const auto prompts, read_prompts(folder_of(name) / "logits.safetensors"));
    REQUIRE_OK(const auto loaded, load(folder_of(name), DType::f32));
    REQUIRE_OK(const auto expected, all_logits(*loaded.runner, prompts));
    for (const ExpertArrangement& way : expert_arrangements) {
      REQUIRE_OK(const auto ranks,
                 run_ranks(folder_of(name), DType::f32,
                           {.shape = way.shape, .expert_parallel_size = way.expert_parallel_size},
                           [&](Runner& runner, int) { return all_logits(runner, prompts); }));
      for (const auto& of_rank : ranks) expect_same_bits(of_rank, expected, name + ", " + way.name);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Quantized, testing::ValuesIn(checkpoints()),
                         [](const auto& info) { return name_in_test(info.param); });

}  // namespace
}  // namespace troupe::golden
