// Speculation with a draft model on the reference run: answers stay those of the large model, and
// as many guesses are accepted as in Transformers.
#include <fstream>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "actors/scheduler/scheduler.hpp"
#include "actors/worker/model_runner.hpp"
#include "actors/worker/sampling/drafter.hpp"
#include "models/families/family.hpp"
#include "models/ops/cpu/cpu_ops.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/support/require.hpp"

namespace troupe::golden {
namespace {

constexpr std::int64_t kv_blocks = 64;

/// The large model with a draft model, like in a worker.
struct Speculating {
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Model> model;
  std::unique_ptr<Drafter> drafter;
  std::unique_ptr<ModelRunner> runner;
};

Result<Speculating> load_both(const std::filesystem::path& target,
                              const std::filesystem::path& draft, std::int32_t drafts) {
  const ModelLimits limits{.max_batch_tokens = 512, .max_head_rows = 16, .max_positions = 1024};
  Speculating all;
  TROUPE_TRY(all.ops, make_cpu_ops({.threads = 2, .dtype = DType::f32}));
  TROUPE_TRY(const ModelConfig config, load_model_config(target));
  TROUPE_TRY(const Checkpoint checkpoint, Checkpoint::open(target.string()));
  TROUPE_TRY(all.model, load_model(config, checkpoint, *all.ops, {}, limits));
  TROUPE_CHECK(all.model->allocate_kv_cache(kv_blocks));
  TROUPE_TRY(Drafter drafter,
             Drafter::create(draft.string(), LoadFormat::safetensors, config, limits, *all.ops));
  all.drafter = std::make_unique<Drafter>(std::move(drafter));
  TROUPE_CHECK(all.drafter->allocate_kv_cache(kv_blocks));
  TROUPE_TRY(ModelRunner runner, ModelRunner::create(*all.model, *all.ops, {}, kv_blocks));
  all.runner = std::make_unique<ModelRunner>(std::move(runner));
  all.runner->enable_drafting();
  all.runner->set_drafter(*all.drafter, drafts);
  return all;
}

/// The tokens of a greedy answer, and for each step with guesses after output token i, how many of
/// them were accepted.
struct GreedyRun {
  std::vector<std::int32_t> output;
  std::map<std::size_t, int> accepted_at;
};

Result<GreedyRun> answer(Speculating& both, Scheduler& scheduler, const GoldenAnswer& golden) {
  SequenceGroupSpec spec;
  spec.prompt = golden.prompt;
  spec.sampling.temperature = 0.0F;
  spec.sampling.max_tokens = static_cast<std::int32_t>(golden.output.size());
  TROUPE_CHECK(scheduler.add(spec));
  GreedyRun run;
  while (const auto plan = scheduler.plan()) {
    TROUPE_CHECK(both.runner->begin(*plan));
    TROUPE_TRY(StepResult result, both.runner->finish());
    TROUPE_TRY(const auto updates, scheduler.apply(std::move(result)));
    for (const SequenceUpdate& update : updates) {
      if (!plan->steps.front().drafts.empty()) {
        run.accepted_at[run.output.size()] = static_cast<int>(update.tokens.size()) - 1;
      }
      run.output.insert(run.output.end(), update.tokens.begin(), update.tokens.end());
    }
  }
  return run;
}

class DraftModel : public testing::TestWithParam<int> {};

TEST_P(DraftModel, leaves_greedy_answers_alone_and_is_right_as_often_as_the_reference) {
  const auto target = golden_model("fable-dense");
  if (!target) GTEST_SKIP() << missing_model_message("fable-dense");
  const auto draft = golden_model("fable-draft");
  const int k = GetParam();
  std::ifstream stream(outside_folder() / "golden/speculative-fable-dense.json");
  ASSERT_TRUE(stream);
  const auto golden = nlohmann::json::parse(stream);
  REQUIRE_OK(Speculating both, load_both(target->checkpoint, draft->checkpoint, k));
  SchedulerConfig config;
  config.max_num_seqs = 1;
  config.max_num_batched_tokens = 512;
  config.kv_cache_blocks = kv_blocks;
  config.max_model_len = 1024;
  config.speculation = {SpeculationConfig::Method::draft_model, k, 3};
  REQUIRE_OK(Scheduler scheduler, Scheduler::make(config));
  REQUIRE_OK(const auto answers, read_answers(target->greedy));
  std::size_t compared = 0;
  std::size_t steps = 0;
  for (const auto& prompt : golden.at("prompts")) {
    const auto found =
        std::ranges::find(answers, prompt.at("id").get<std::string>(), &GoldenAnswer::id);
    ASSERT_NE(found, answers.end());
    REQUIRE_OK(const GreedyRun run, answer(both, scheduler, *found));
    EXPECT_EQ(run.output, found->output) << found->id;
    // The reference guesses from the first token on, the engine from the second: they are compared
    // where both begin a step.
    std::size_t at = 0;
    for (const int accepted : prompt.at("accepted_k" + std::to_string(k))) {
      const auto own = run.accepted_at.find(at);
      if (own != run.accepted_at.end()) {
        EXPECT_EQ(own->second, accepted) << found->id << " at token " << at;
        ++compared;
      }
      at += static_cast<std::size_t>(accepted) + 1;
      ++steps;
    }
  }
  EXPECT_GT(compared, steps * 6 / 10) << "of the reference's steps";
}

INSTANTIATE_TEST_SUITE_P(Guesses, DraftModel, testing::Values(1, 3, 5),
                         [](const auto& info) { return fmt::format("k{}", info.param); });

}  // namespace
}  // namespace troupe::golden
