// A model in 8-bit codes whose layers fall back between steps, on a GPU that captures them.
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/worker/model_runner.hpp"
#include "models/families/family.hpp"
#include "models/ops/cuda/cuda_ops.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/support/require.hpp"

namespace troupe::golden {
namespace {

using testing::IsEmpty;

constexpr std::int64_t kv_blocks = 64;

/// A model in 8-bit codes, and what runs its steps, if anything.
struct Fp8Engine {
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Model> model;
  std::optional<ModelRunner> runner;
};

/// Without a KV cache and a runner.
Result<Fp8Engine> load_engine(const std::string& name, float max_activation) {
  Fp8Engine engine;
  TROUPE_TRY(engine.ops, make_cuda_ops({.device = 0,
                                        .dtype = DType::bf16,
                                        .encoding = WeightEncoding::fp8,
                                        .widens_codes = true}));
  const auto folder = golden_model(name)->checkpoint;
  TROUPE_TRY(const ModelConfig config, load_model_config(folder));
  TROUPE_TRY(const Checkpoint checkpoint, Checkpoint::open(folder));
  TROUPE_TRY(engine.model, load_model(config, checkpoint, *engine.ops, {},
                                      {.max_batch_tokens = 256,
                                       .max_head_rows = 64,
                                       .encoding = WeightEncoding::fp8,
                                       .compute = DType::bf16,
                                       .kv_dtype = DType::bf16,
                                       .max_activation = max_activation}));
  return engine;
}

Result<Fp8Engine> make_engine(const std::string& name, float max_activation, bool captures) {
  TROUPE_TRY(Fp8Engine engine, load_engine(name, max_activation));
  TROUPE_CHECK(
      engine.model->allocate_kv_cache(ModelRunner::blocks_to_allocate(*engine.model, kv_blocks)));
  TROUPE_TRY(ModelRunner runner, ModelRunner::create(*engine.model, *engine.ops, {}, kv_blocks));
  if (!captures) runner.enable_drafting();
  engine.runner.emplace(std::move(runner));
  return engine;
}

/// What a sequence's steps sampled, with log-probabilities.
struct Sampled {
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<std::int32_t> told;  ///< layers, in the order in which they were told
};

/// Runs a prompt and then `steps` steps; the plan of step `widened_at` names `layers`.
Result<Sampled> run(Fp8Engine& engine, int steps, int widened_at,
                    const std::vector<std::int32_t>& layers) {
  Sampled sampled;
  constexpr std::int32_t prompt = 20;
  for (int step = 0; step < steps; ++step) {
    StepPlan plan;
    plan.step = static_cast<std::uint64_t>(step);
    if (step == widened_at) plan.widened_layers = layers;
    if (step == 0) {
      NewSequence sequence{.id = 0, .tokens = {}, .prompt_tokens = prompt, .sampling = {}};
      for (std::int32_t i = 0; i < prompt; ++i) sequence.tokens.push_back(100 + 37 * i % 500);
      sequence.sampling.temperature = 0;
      sequence.sampling.ignore_eos = true;
      sequence.sampling.logprobs = 0;
      plan.started.push_back(std::move(sequence));
    }
    SequenceStep of;
    of.first_position = step == 0 ? 0 : prompt + step - 1;
    of.tokens = step == 0 ? prompt : 1;
    if (step == 0) {
      of.new_blocks.resize(16);
      std::iota(of.new_blocks.begin(), of.new_blocks.end(), 0);
    }
    of.sample = true;
    plan.steps.push_back(std::move(of));
    TROUPE_CHECK(engine.runner->begin(plan));
    TROUPE_TRY(const StepResult result, engine.runner->finish());
    sampled.tokens.push_back(result.results.front().tokens.front());
    sampled.logprobs.push_back(result.results.front().logprobs.front().logprob);
    for (const LayerPeak& peak : engine.model->take_peaks()) sampled.told.push_back(peak.layer);
  }
  return sampled;
}

std::vector<std::int32_t> all_layers(const Model& model) {
  std::vector<std::int32_t> layers(static_cast<std::size_t>(model.config().layers));
  std::iota(layers.begin(), layers.end(), 0);
  return layers;
}

/// A dense model and one with experts.
class GpuFallback : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Golden, GpuFallback, testing::Values("fable-draft", "fable-moe"),
                         [](const auto& info) { return name_in_test(info.param); });

TEST_P(GpuFallback, of_layers_between_captured_steps_is_that_of_steps_that_are_not_captured) {
  if (max_golden_ranks() < 1) GTEST_SKIP() << "no GPU";
  constexpr int steps = 14, widened_at = 7;
  REQUIRE_OK(auto captured, make_engine(GetParam(), 1e-3F, true));
  REQUIRE_OK(auto direct, make_engine(GetParam(), 1e-3F, false));
  ASSERT_TRUE(captured.model->supports_graph());
  const auto layers = all_layers(*captured.model);
  REQUIRE_OK(const Sampled found, run(captured, steps, widened_at, layers));
  REQUIRE_OK(const Sampled expected, run(direct, steps, widened_at, layers));
  EXPECT_EQ(found.tokens, expected.tokens);
  for (std::size_t i = 0; i < found.logprobs.size(); ++i) {
    EXPECT_NEAR(found.logprobs[i], expected.logprobs[i], 1e-3) << "step " << i;
  }
  // Every layer has had a number above the bound in the first step, and is told once.
  EXPECT_EQ(found.told, layers);
  EXPECT_EQ(expected.told, layers);
  // The steps before are those of a model that rounds, the others are not.
  REQUIRE_OK(auto rounding, make_engine(GetParam(), std::numeric_limits<float>::infinity(), true));
  REQUIRE_OK(const Sampled rounded, run(rounding, steps, -1, {}));
  EXPECT_THAT(rounded.told, IsEmpty());
  for (int i = 0; i < widened_at; ++i) {
    EXPECT_EQ(rounded.logprobs[static_cast<std::size_t>(i)],
              found.logprobs[static_cast<std::size_t>(i)])
        << "step " << i;
  }
  double difference = 0;
  for (std::size_t i = widened_at; i < steps; ++i) {
    difference += std::abs(rounded.logprobs[i] - found.logprobs[i]);
  }
  EXPECT_GT(difference, 0.0);
}

TEST_P(GpuFallback, makes_logits_nearer_to_those_in_bf16) {
  if (max_golden_ranks() < 1) GTEST_SKIP() << "no GPU";
  REQUIRE_OK(auto engine, load_engine(GetParam(), 1e6F));
  const auto golden = golden_model(GetParam());
  REQUIRE_OK(const auto prompts, read_prompts(golden->logits));
  REQUIRE_OK(const LoadedModel exact, load(golden->checkpoint, DType::bf16));
  REQUIRE_OK(const auto runner, Runner::create(*engine.ops, *engine.model, kv_blocks));
  const auto logits_of = [&](Runner& of) -> Result<std::vector<float>> {
    std::vector<float> logits;
    for (const GoldenPrompt& prompt : prompts) {
      Sequence sequence{prompt.ids};
      TROUPE_CHECK(of.feed(sequence, 64, logits));
      of.release(sequence);
    }
    return logits;
  };
  const auto distance = [](const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(double{a[i]} - b[i]);
    return sum / static_cast<double>(a.size());
  };
  REQUIRE_OK(const auto expected, logits_of(*exact.runner));
  REQUIRE_OK(const auto rounded, logits_of(*runner));
  EXPECT_THAT(engine.model->take_peaks(), IsEmpty());
  ASSERT_TRUE(engine.model->widen_layers(all_layers(*engine.model)).ok());
  REQUIRE_OK(const auto widened, logits_of(*runner));
  const double with = distance(widened, expected), without = distance(rounded, expected);
  std::cout << "mean differences of logits: with rounded activations " << without << ", without "
            << with << '\n';
  EXPECT_LT(with, 0.9 * without);
}

}  // namespace
}  // namespace troupe::golden
