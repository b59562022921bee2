#include "models/sampler/logits_editor.hpp"

#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/sampler/sampler.hpp"
#include "tests/support/source_path.hpp"

namespace troupe {
namespace {

using testing::ElementsAre;
using Ids = std::vector<std::int32_t>;

constexpr float masked = -std::numeric_limits<float>::infinity();
constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0.0F;
  return params;
}

std::vector<float> edited(const std::vector<float>& logits, const SamplingParams& params,
                          const Ids& prompt = {}, const Ids& output = {}) {
  LogitsEditor editor;
  const auto found = editor.edit(logits, params, {prompt, output});
  return {found.begin(), found.end()};
}

TEST(LogitsEditor, has_nothing_to_do_for_plain_requests) {
  SamplingParams params;
  params.stop_token_ids = {1, 2};
  params.top_k = 5;
  params.seed = 9;
  EXPECT_FALSE(edits_logits(params));
  params.min_tokens = 1;
  EXPECT_TRUE(edits_logits(params));
}

TEST(LogitsEditor, penalizes_tokens_of_prompt_and_output_as_the_definitions_say) {
  SamplingParams params;
  params.repetition_penalty = 2.0F;
  params.frequency_penalty = 0.5F;
  params.presence_penalty = 0.25F;
  // 0: nowhere, 1: prompt only, 2: prompt and once in the output, 3: three times in the output.
  EXPECT_THAT(edited({4.0F, 4.0F, 4.0F, -4.0F}, params, {1, 2, 1}, {3, 2, 3, 3}),
              ElementsAre(4.0F, 2.0F, 2.0F - 0.5F - 0.25F, -8.0F - 1.5F - 0.25F));
}

TEST(LogitsEditor, counts_nothing_of_the_call_before) {
  SamplingParams params;
  params.frequency_penalty = 1.0F;
  LogitsEditor editor;
  const std::vector<float> logits(4, 0.0F);
  for (const Ids& output : {Ids{1, 1, 3}, Ids{0}, Ids{}, Ids{1}}) {
    const auto found = editor.edit(logits, params, {{}, output});
    EXPECT_EQ(std::vector<float>(found.begin(), found.end()), edited(logits, params, {}, output));
  }
}

TEST(LogitsEditor, masks_all_but_the_allowed_tokens) {
  SamplingParams params;
  params.allowed_token_ids = {3, 1, 7, -1};
  EXPECT_THAT(edited({1.0F, 2.0F, 3.0F, 4.0F}, params), ElementsAre(masked, 2.0F, masked, 4.0F));
}

TEST(LogitsEditor, masks_the_end_of_a_bad_word_only_behind_its_beginning) {
  SamplingParams params;
  params.bad_words = {{2}, {1, 3}, {1, 3, 0}};
  const std::vector<float> logits(4, 1.0F);
  EXPECT_THAT(edited(logits, params), ElementsAre(1.0F, 1.0F, masked, 1.0F));
  EXPECT_THAT(edited(logits, params, {1}), ElementsAre(1.0F, 1.0F, masked, 1.0F))
      << "a beginning in the prompt does not count";
  EXPECT_THAT(edited(logits, params, {}, {0, 1}), ElementsAre(1.0F, 1.0F, masked, masked));
  EXPECT_THAT(edited(logits, params, {}, {1, 3}), ElementsAre(masked, 1.0F, masked, 1.0F));
}

TEST(LogitsEditor, masks_stop_tokens_until_min_tokens_are_generated) {
  SamplingParams params;
  params.stop_token_ids = {0, 2, 99};
  params.min_tokens = 2;
  const std::vector<float> logits(3, 1.0F);
  EXPECT_THAT(edited(logits, params, {5, 5, 5}, {1}), ElementsAre(masked, 1.0F, masked));
  EXPECT_THAT(edited(logits, params, {}, {1, 1}), ElementsAre(1.0F, 1.0F, 1.0F));
}

TEST(LogitsEditor, adds_bias_before_it_penalizes_and_lifts_no_mask) {
  SamplingParams params;
  params.logit_bias = {{0, 3.0F}, {1, 100.0F}, {9, 1.0F}};
  params.allowed_token_ids = {0, 2};
  params.repetition_penalty = 2.0F;
  // The bias turns the sign, which decides whether the penalty divides or multiplies.
  EXPECT_THAT(edited({-1.0F, 1.0F, -1.0F}, params, {0, 2}), ElementsAre(1.0F, masked, -2.0F));
}

TEST(EditedSampling, is_greedy_over_the_edited_logits) {
  SamplerScratch scratch;
  SamplingParams params = greedy();
  const std::vector<float> logits{1.0F, 3.0F, 2.0F};
  EXPECT_EQ(sample(logits, params, {}, scratch).id, 1);
  params.logit_bias = {{0, 5.0F}};
  EXPECT_EQ(sample(logits, params, {}, scratch).id, 0);
  params.logit_bias = {{1, -100.0F}};
  EXPECT_EQ(sample(logits, params, {}, scratch).id, 2);
}

TEST(EditedSampling, never_draws_a_masked_token_whatever_is_cut) {
  SamplerScratch scratch;
  std::vector<float> logits(300, 0.0F);
  for (std::size_t i = 0; i < logits.size(); i += 7) logits[i] = 4.0F;
  SamplingParams params;
  params.allowed_token_ids = {3, 131, 299};
  for (const auto& [top_k, top_p, min_p] : {std::tuple{0, 1.0F, 0.0F},
                                            {2, 1.0F, 0.0F},
                                            {200, 1.0F, 0.0F},
                                            {0, 0.9F, 0.0F},
                                            {0, 1.0F, 0.1F},
                                            {5, 0.99F, 0.01F}}) {
    params.top_k = top_k;
    params.top_p = top_p;
    params.min_p = min_p;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      params.seed = seed;
      const auto id = sample(logits, params, {}, scratch).id;
      EXPECT_TRUE(id == 3 || id == 131 || id == 299)
          << id << " with top_k " << top_k << ", top_p " << top_p << ", min_p " << min_p;
    }
  }
}

TEST(EditedSampling, draws_like_plain_sampling_where_the_edits_change_nothing) {
  SamplerScratch scratch;
  std::vector<float> logits(1000);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 37) * 0.1F;
  SamplingParams plain;
  plain.top_k = 50;
  plain.seed = 5;
  plain.choice = 2;
  SamplingParams neutral = plain;
  neutral.logit_bias = {{4, 0.0F}};
  const Ids prompt{1, 2};
  Ids output;
  for (int i = 0; i < 50; ++i) {
    const auto expected = sample(logits, plain, prompt.size() + output.size(), 2, scratch).id;
    EXPECT_EQ(sample(logits, plain, {prompt, output}, scratch).id, expected);
    EXPECT_EQ(sample(logits, neutral, {prompt, output}, scratch).id, expected);
    output.push_back(expected);
  }
}

TEST(EditedSampling, fails_without_a_token_to_choose_and_on_logits_that_are_not_finite) {
  SamplerScratch scratch;
  SamplingParams params = greedy();
  params.allowed_token_ids = {1};
  EXPECT_EQ(sample(std::vector<float>{0.0F, 1.0F}, params, {}, scratch).id, 1);
  EXPECT_TRUE(sample(std::vector<float>{nan_value, 1.0F}, params, {}, scratch).failed)
      << "a NaN counts, masked or not";
  params.bad_words = {{1}};
  EXPECT_TRUE(sample(std::vector<float>{0.0F, 1.0F}, params, {}, scratch).failed);
}

TEST(TokenLogprobs, tell_the_rank_of_the_token) {
  SamplerScratch scratch;
  const std::vector<float> logits{0.0F, 3.0F, 1.0F, 1.0F, 2.0F};
  EXPECT_EQ(token_logprobs(logits, 1, 0, scratch).rank, 1);
  EXPECT_EQ(token_logprobs(logits, 4, 2, scratch).rank, 2);
  EXPECT_EQ(token_logprobs(logits, 3, 0, scratch).rank, 3);
  EXPECT_EQ(token_logprobs(logits, 0, 0, scratch).rank, 5);
}

TEST(LogitsEditorGolden, penalizes_the_logits_of_a_real_model_by_vllms_definitions) {
  const std::string folder = test::source_path("tests/data/sampler/");
  std::ifstream json_file(folder + "penalties.json");
  ASSERT_TRUE(json_file) << "cannot open " << folder << "penalties.json";
  const auto golden = nlohmann::json::parse(json_file);
  std::ifstream values_file(folder + "penalties.f32", std::ios::binary);
  const auto vocab = golden["vocab"].get<std::size_t>();
  std::vector<float> logits(vocab);
  std::vector<float> expected(vocab);
  LogitsEditor editor;
  SamplerScratch scratch;
  ASSERT_EQ(golden["cases"].size(), 5U);
  for (const auto& entry : golden["cases"]) {
    const auto name = entry["id"].get<std::string>();
    for (auto* values : {&logits, &expected}) {
      ASSERT_TRUE(values_file.read(reinterpret_cast<char*>(values->data()),
                                   static_cast<std::streamsize>(vocab * sizeof(float))))
          << name;
    }
    SamplingParams params = greedy();
    params.repetition_penalty = entry["repetition_penalty"];
    params.frequency_penalty = entry["frequency_penalty"];
    params.presence_penalty = entry["presence_penalty"];
    const auto prompt = entry["prompt_ids"].get<Ids>();
    const auto output = entry["output_so_far"].get<Ids>();
    const auto found = editor.edit(logits, params, {prompt, output});
    for (std::size_t i = 0; i < vocab; ++i) {
      ASSERT_NEAR(found[i], expected[i], 1e-5F * std::max(1.0F, std::abs(expected[i])))
          << name << ", token " << i << ", raw " << logits[i];
    }
    EXPECT_EQ(sample(logits, params, {prompt, output}, scratch).id,
              entry["argmax_after"].get<std::int32_t>())
        << name;
    EXPECT_EQ(sample(logits, greedy(), {prompt, output}, scratch).id,
              entry["argmax_before"].get<std::int32_t>())
        << name;
  }
}

}  // namespace
}  // namespace troupe
