// What holds for caches that drop tokens, on CPUs.
#include <gtest/gtest.h>

#include "tests/golden/kv_policies/policy_engine.hpp"
#include "tests/support/require.hpp"

namespace troupe::golden {
namespace {

struct Cached {
  std::string name;
  KvPolicy policy;
  std::optional<DType> codes = {};

  friend void PrintTo(const Cached& cached, std::ostream* out) { *out << cached.name; }
};

class Exactness : public testing::TestWithParam<Cached> {};

/// The same bits whatever the steps, the company, the preemptions and the threads.
TEST_P(Exactness, holds_under_a_policy) {
  const auto folder = golden_model("llama-a")->checkpoint;
  std::vector<std::vector<std::int32_t>> prompts;
  for (unsigned i = 0; i < 6; ++i) prompts.push_back(random_tokens(20 + 17 * i, 512, i));
  const auto& [name, policy, codes] = GetParam();
  REQUIRE_OK(Engine alone, start(folder, policy, {.kv_codes = codes}));
  std::vector<Answer> expected;
  for (const auto& prompt : prompts) {
    REQUIRE_OK(auto answers, answer(alone, {prompt}, 50));
    expected.push_back(answers.front());
  }
  // With 14 blocks requests are preempted and computed anew.
  for (EngineOptions options :
       {EngineOptions{}, EngineOptions{.step_tokens = 23}, EngineOptions{.blocks = 14},
        EngineOptions{.threads = 2}, EngineOptions{.restart_after = 30}}) {
    options.kv_codes = codes;
    REQUIRE_OK(Engine together, start(folder, policy, options));
    REQUIRE_OK(const auto answers, answer(together, prompts, 50));
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(answers[i].tokens, expected[i].tokens) << "prompt " << i;
      EXPECT_TRUE(answers[i].logprobs == expected[i].logprobs) << "prompt " << i;
    }
    if (options.blocks == 14 && policy.kind != KvPolicy::Kind::h2o) {
      EXPECT_GT(together.scheduler->counters().preemptions, 0U);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, Exactness,
                         testing::Values(Cached{"streaming", streaming}, Cached{"snapkv", snapkv},
                                         Cached{"h2o", h2o},
                                         Cached{"streaming_in_int8", streaming, DType::i8},
                                         Cached{"snapkv_in_int8", snapkv, DType::i8},
                                         Cached{"h2o_in_fp8", h2o, DType::f8_e4m3}),
                         [](const auto& info) { return info.param.name; });

TEST(EightBitCaches, have_the_same_bits_preempted_swapped_restarted_and_shared) {
  const auto folder = golden_model("llama-a")->checkpoint;
  std::vector<std::vector<std::int32_t>> prompts;
  for (unsigned i = 0; i < 6; ++i) {
    prompts.push_back(random_tokens(40, 512, 99));
    const auto own = random_tokens(10 + 11 * i, 512, i);
    prompts.back().insert(prompts.back().end(), own.begin(), own.end());
  }
  for (const DType codes : {DType::i8, DType::f8_e4m3}) {
    SCOPED_TRACE(to_string(codes));
    REQUIRE_OK(Engine alone, start(folder, full, {.kv_codes = codes, .scores_prompts = false}));
    std::vector<Answer> expected;
    for (const auto& prompt : prompts) {
      REQUIRE_OK(auto answers, answer(alone, {prompt}, 50));
      expected.push_back(answers.front());
    }
    SchedulerCounters seen;
    for (EngineOptions options :
         {EngineOptions{.step_tokens = 23}, EngineOptions{.blocks = 16},
          EngineOptions{.blocks = 16, .swap_blocks = 64}, EngineOptions{.prefix_caching = true},
          EngineOptions{.blocks = 18, .prefix_caching = true, .swap_blocks = 64},
          EngineOptions{.threads = 2, .restart_after = 30}}) {
      options.kv_codes = codes;
      options.scores_prompts = false;
      REQUIRE_OK(Engine together, start(folder, full, options));
      REQUIRE_OK(const auto answers, answer(together, prompts, 50));
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        EXPECT_EQ(answers[i].tokens, expected[i].tokens) << "prompt " << i;
        EXPECT_TRUE(answers[i].logprobs == expected[i].logprobs) << "prompt " << i;
      }
      seen.preemptions += together.scheduler->counters().preemptions;
      seen.swaps += together.scheduler->counters().swaps;
      seen.prefix_tokens += together.scheduler->counters().prefix_tokens;
    }
    EXPECT_GT(seen.preemptions, 0U);
    EXPECT_GT(seen.swaps, 0U);
    EXPECT_GT(seen.prefix_tokens, 0U);
  }
}

TEST(KvPolicies, of_h2o_and_snapkv_free_the_blocks_of_what_is_dropped) {
  const auto folder = golden_model("llama-a")->checkpoint;
  for (const KvPolicy& policy : {h2o, snapkv}) {
    REQUIRE_OK(Engine engine, start(folder, policy));
    REQUIRE_OK(const auto answers, answer(engine, {random_tokens(320, 512, 1)}, 30));
    EXPECT_EQ(answers.front().most_blocks, 20) << "of the whole prompt";
    EXPECT_EQ(answers.front().last_blocks, policy.kind == KvPolicy::Kind::h2o ? 2 : 4);
  }
}

TEST(KvPolicies, refuse_a_plan_with_rows_on_both_sides_of_a_drop) {
  REQUIRE_OK(Engine engine, start(golden_model("llama-a")->checkpoint, streaming));
  StepPlan plan;
  plan.started.push_back({.id = 0, .tokens = random_tokens(50, 512, 1), .prompt_tokens = 50});
  plan.steps.push_back({.id = 0, .tokens = 38, .new_blocks = {0, 1, 2}});
  const auto begun = engine.runner->begin(plan);
  ASSERT_FALSE(begun.ok()) << "37 tokens fill the cache";
  EXPECT_EQ(begun.error().code, ErrorCode::corrupt_data);
}

TEST(KvPolicies, but_for_full_take_no_beam_search) {
  REQUIRE_OK(Engine engine, start(golden_model("llama-a")->checkpoint, h2o));
  SequenceGroupSpec spec;
  spec.prompt = {1, 2, 3};
  spec.beam_width = 2;
  const auto added = engine.scheduler->add(spec);
  ASSERT_FALSE(added.ok());
  EXPECT_NE(added.error().message.find("beam search"), std::string::npos);
}

}  // namespace
}  // namespace troupe::golden
