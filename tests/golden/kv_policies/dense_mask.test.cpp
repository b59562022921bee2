// What a policy keeps, through scheduler, worker and cache, beside dense attention under a mask.
// Also for GPUs (tests/gpu/golden).
#include <cmath>

#include <gtest/gtest.h>

#include "tests/golden/kv_policies/dense_reference.hpp"
#include "tests/golden/kv_policies/policy_engine.hpp"
#include "tests/support/require.hpp"

namespace troupe::golden {
namespace {

struct Case {
  const char* name;
  const char* model;
  KvPolicy policy;
  std::size_t prompt;
};

class KvPolicies : public testing::TestWithParam<Case> {};

TEST_P(KvPolicies, are_dense_attention_under_a_mask_of_what_is_kept) {
  const auto& [name, model, policy, prompt_tokens] = GetParam();
  const auto folder = golden_model(model)->checkpoint;
  REQUIRE_OK(Engine engine, start(folder, policy));
  const auto prompt = random_tokens(prompt_tokens, engine.model->config().vocab_size, 7);
  REQUIRE_OK(const auto answers, answer(engine, {prompt}, 60));
  const Answer& found = answers.front();
  ASSERT_EQ(found.tokens.size(), prompt_tokens + 60);
  ASSERT_EQ(found.logprobs.size(), found.tokens.size() - 1);
  REQUIRE_OK(DenseReference reference, DenseReference::load(folder, policy));
  for (std::size_t i = 0; i + 1 < found.tokens.size(); ++i) {
    const auto expected = reference.next(found.tokens[i], static_cast<std::int32_t>(prompt_tokens));
    const auto token = static_cast<std::size_t>(found.tokens[i + 1]);
    ASSERT_NEAR(static_cast<double>(found.logprobs[i].logprob), expected[token], 2e-4)
        << "token " << i + 1 << " after a prompt of " << prompt_tokens;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, KvPolicies,
    testing::Values(Case{"all_tokens", "llama-a", full, 70},
                    Case{"streaming_after_a_long_prompt", "llama-a", streaming, 70},
                    Case{"streaming_after_a_short_prompt", "llama-a", streaming, 9},
                    Case{"streaming_with_norms_of_heads", "fable-draft", streaming, 70},
                    Case{"snapkv", "llama-a", snapkv, 70},
                    Case{"snapkv_of_a_short_prompt", "llama-a", snapkv, 20},
                    Case{"snapkv_with_norms_of_heads", "fable-draft", snapkv, 90},
                    Case{"h2o_after_a_long_prompt", "llama-a", h2o, 70},
                    Case{"h2o_after_a_short_prompt", "llama-a", h2o, 5},
                    Case{"h2o_with_norms_of_heads", "fable-draft", h2o, 90}),
    [](const auto& info) { return info.param.name; });

TEST(KvPolicies, of_streaming_take_constant_memory_however_long_the_sequence_is) {
  const auto folder = golden_model("llama-a")->checkpoint;
  REQUIRE_OK(Engine engine, start(folder, streaming));
  REQUIRE_OK(const auto answers, answer(engine, {random_tokens(300, 512, 1)}, 400));
  EXPECT_EQ(answers.front().tokens.size(), 700U);
  EXPECT_EQ(answers.front().most_blocks, 3) << "blocks of 16 for 37 tokens";
}

TEST(KvPolicies, keep_keys_in_bfloat16_as_well) {
  const auto folder = golden_model("fable-draft")->checkpoint;
  for (const KvPolicy& policy : {streaming, snapkv, h2o}) {
    REQUIRE_OK(Engine wide, start(folder, policy));
    REQUIRE_OK(Engine narrow, start(folder, policy, {.dtype = DType::bf16}));
    const auto prompt = random_tokens(120, 4096, 3);
    REQUIRE_OK(const auto expected, answer(wide, {prompt}, 1));
    REQUIRE_OK(const auto found, answer(narrow, {prompt}, 1));
    double difference = 0.0;
    for (std::size_t i = 0; i < expected.front().logprobs.size(); ++i) {
      difference += std::abs(static_cast<double>(found.front().logprobs[i].logprob) -
                             static_cast<double>(expected.front().logprobs[i].logprob));
    }
    difference /= static_cast<double>(expected.front().logprobs.size());
    EXPECT_LT(difference, 0.1) << to_string(policy.kind);
  }
}

}  // namespace
}  // namespace troupe::golden
