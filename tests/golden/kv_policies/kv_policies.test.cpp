// What a policy keeps, through scheduler, worker and cache, beside dense attention under a mask.
#include <algorithm>
#include <memory>
#include <random>

#include <gtest/gtest.h>

#include "actors/scheduler/scheduler.hpp"
#include "actors/worker/model_runner.hpp"
#include "models/families/family.hpp"
#include "models/ops/cpu/cpu_ops.hpp"
#include "tests/golden/kv_policies/dense_reference.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/support/require.hpp"

namespace troupe::golden {
namespace {

constexpr KvPolicy full;
constexpr KvPolicy streaming{
    .kind = KvPolicy::Kind::streaming, .capacity = 37, .first_tokens = 4, .drop_tokens = 5};
constexpr KvPolicy snapkv{
    .kind = KvPolicy::Kind::snapkv, .capacity = 24, .last_tokens = 8, .pooling_tokens = 5};
constexpr KvPolicy h2o{
    .kind = KvPolicy::Kind::h2o, .capacity = 26, .last_tokens = 10, .drop_tokens = 3};

struct EngineOptions {
  std::int32_t blocks = 64;
  std::int32_t step_tokens = 64;
  DType dtype = DType::f32;
  std::int32_t threads = 1;
  int restart_after = 0;  ///< steps, after which all caches are lost; 0: never
};

/// A model with its scheduler, as in a job.
struct Engine {
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Model> model;
  std::unique_ptr<ModelRunner> runner;
  std::unique_ptr<Scheduler> scheduler;
  EngineOptions options;

  /// Loses the caches of all sequences, as when a worker dies.
  Result<void> restart() {
    scheduler->restart(1);
    TROUPE_TRY(ModelRunner again, ModelRunner::create(*model, *ops, {}, options.blocks));
    runner = std::make_unique<ModelRunner>(std::move(again));
    return {};
  }
};

Result<Engine> start(const std::filesystem::path& folder, const KvPolicy& policy,
                     const EngineOptions& options = {}) {
  Engine engine;
  engine.options = options;
  const ModelLimits limits{.max_batch_tokens = options.step_tokens,
                           .max_head_rows = options.step_tokens,
                           .max_positions = 1024,
                           .compute = options.dtype,
                           .kv_dtype = options.dtype,
                           .kv_policy = policy};
  TROUPE_TRY(engine.ops, make_cpu_ops({.threads = options.threads, .dtype = options.dtype}));
  TROUPE_TRY(const ModelConfig config, load_model_config(folder));
  TROUPE_TRY(const Checkpoint checkpoint, Checkpoint::open(folder));
  TROUPE_TRY(engine.model, load_model(config, checkpoint, *engine.ops, {}, limits));
  TROUPE_CHECK(engine.model->allocate_kv_cache(options.blocks));
  TROUPE_TRY(ModelRunner runner,
             ModelRunner::create(*engine.model, *engine.ops, {}, options.blocks));
  engine.runner = std::make_unique<ModelRunner>(std::move(runner));
  SchedulerConfig plans;
  plans.max_num_seqs = 16;
  plans.max_num_batched_tokens = options.step_tokens;
  plans.kv_cache_blocks = options.blocks;
  plans.max_model_len = 1024;
  plans.kv_policy = policy;
  TROUPE_TRY(Scheduler scheduler, Scheduler::make(plans));
  engine.scheduler = std::make_unique<Scheduler>(std::move(scheduler));
  return engine;
}

struct Answer {
  std::vector<std::int32_t> tokens;          ///< prompt and answer
  std::vector<TokenLogprobs> logprobs = {};  ///< of all but the first token
  std::int32_t most_blocks = 0;              ///< held at one time by all sequences
  std::int32_t last_blocks = 0;              ///< held in the last step
};

/// Answers the prompts together, with the log-probabilities of prompts and answers.
Result<std::vector<Answer>> answer(Engine& engine,
                                   const std::vector<std::vector<std::int32_t>>& prompts,
                                   std::int32_t max_tokens) {
  std::vector<Answer> answers;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    SequenceGroupSpec spec;
    spec.request = i;
    spec.prompt = prompts[i];
    spec.sampling.temperature = 0.0F;
    spec.sampling.max_tokens = max_tokens;
    spec.sampling.logprobs = 3;
    spec.sampling.prompt_logprobs = 3;
    TROUPE_CHECK(engine.scheduler->add(std::move(spec)));
    answers.push_back({.tokens = prompts[i]});
  }
  int steps = 0;
  while (const auto plan = engine.scheduler->plan()) {
    TROUPE_CHECK(engine.scheduler->audit());
    TROUPE_CHECK(engine.runner->begin(*plan));
    TROUPE_TRY(StepResult result, engine.runner->finish());
    const BlockPool& pool = engine.scheduler->blocks();
    answers.front().last_blocks = pool.blocks() - pool.free_blocks();
    answers.front().most_blocks =
        std::max(answers.front().most_blocks, answers.front().last_blocks);
    TROUPE_TRY(const auto updates, engine.scheduler->apply(std::move(result)));
    for (const SequenceUpdate& update : updates) {
      Answer& one = answers[update.request];
      one.tokens.insert(one.tokens.end(), update.tokens.begin(), update.tokens.end());
      // The scores of a prompt that is computed anew come again.
      if (!update.prompt_logprobs.empty()) {
        one.logprobs.resize(static_cast<std::size_t>(update.prompt_begin) - 1);
      }
      one.logprobs.insert(one.logprobs.end(), update.prompt_logprobs.begin(),
                          update.prompt_logprobs.end());
      one.logprobs.insert(one.logprobs.end(), update.logprobs.begin(), update.logprobs.end());
    }
    if (++steps == engine.options.restart_after) TROUPE_CHECK(engine.restart());
  }
  return answers;
}

std::vector<std::int32_t> random_tokens(std::size_t count, std::int64_t vocab, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> tokens(count);
  for (auto& token : tokens)
    token = static_cast<std::int32_t>(random() % static_cast<unsigned>(vocab));
  return tokens;
}

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

TEST(KvPolicies, of_streaming_take_constant_memory_however_long_the_sequence_is) {
  const auto folder = golden_model("llama-a")->checkpoint;
  REQUIRE_OK(Engine engine, start(folder, streaming));
  REQUIRE_OK(const auto answers, answer(engine, {random_tokens(300, 512, 1)}, 400));
  EXPECT_EQ(answers.front().tokens.size(), 700U);
  EXPECT_EQ(answers.front().most_blocks, 3) << "blocks of 16 for 37 tokens";
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
