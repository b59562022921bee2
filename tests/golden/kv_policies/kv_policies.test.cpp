// What holds for caches that drop tokens, on CPUs.
#include <gtest/gtest.h>

#include "tests/golden/kv_policies/policy_engine.hpp"
#include "tests/support/require.hpp"

namespace troupe::golden {
namespace {

class Exactness : public testing::TestWithParam<KvPolicy> {};

/// The same bits whatever the steps, the company, the preemptions and the threads.
TEST_P(Exactness, holds_under_a_policy) {
  const auto folder = golden_model("llama-a")->checkpoint;
  std::vector<std::vector<std::int32_t>> prompts;
  for (unsigned i = 0; i < 6; ++i) prompts.push_back(random_tokens(20 + 17 * i, 512, i));
  REQUIRE_OK(Engine alone, start(folder, GetParam()));
  std::vector<Answer> expected;
  for (const auto& prompt : prompts) {
    REQUIRE_OK(auto answers, answer(alone, {prompt}, 50));
    expected.push_back(answers.front());
  }
  // With 14 blocks requests are preempted and computed anew.
  for (const EngineOptions& options :
       {EngineOptions{}, EngineOptions{.step_tokens = 23}, EngineOptions{.blocks = 14},
        EngineOptions{.threads = 2}, EngineOptions{.restart_after = 30}}) {
    REQUIRE_OK(Engine together, start(folder, GetParam(), options));
    REQUIRE_OK(const auto answers, answer(together, prompts, 50));
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(answers[i].tokens, expected[i].tokens) << "prompt " << i;
      EXPECT_TRUE(answers[i].logprobs == expected[i].logprobs) << "prompt " << i;
    }
    if (options.blocks == 14 && GetParam().kind != KvPolicy::Kind::h2o) {
      EXPECT_GT(together.scheduler->counters().preemptions, 0U);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, Exactness, testing::Values(streaming, snapkv, h2o),
                         [](const auto& info) { return std::string(to_string(info.param.kind)); });

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
