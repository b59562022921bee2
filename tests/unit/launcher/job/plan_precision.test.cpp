#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/job/plan_engine.hpp"
#include "models/families/family.hpp"
#include "tests/support/require.hpp"
#include "tests/support/source_path.hpp"

namespace troupe {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The engine of a job with these settings, for the model of a golden folder.
Result<EngineSpec> planned(const std::vector<std::string>& settings,
                           const std::string& model = "llama-a", int gpus = 0) {
  std::vector<Override> overrides;
  for (const std::string& setting : settings) {
    TROUPE_TRY(Override made, parse_override(setting));
    overrides.push_back(std::move(made));
  }
  TROUPE_TRY(const Config config,
             parse_config("model: {path: somewhere}\n", "job.yaml", overrides, Purpose::check));
  TROUPE_TRY(const ModelConfig read,
             load_model_config(test::source_path("tests/data/golden") / model));
  TROUPE_TRY(const Mesh mesh, Mesh::create({}));
  return plan_engine(config, read, mesh, 4, Gpus{.count = gpus}, true);
}

const std::string fallback = "precision.fallback=w8a16", w8a8 = "model.quantization=w8a8",
                  fp8 = "model.quantization=fp8", bf16 = "model.dtype=bfloat16";

TEST(PlanPrecision, watches_nothing_by_default) {
  REQUIRE_OK(const EngineSpec engine, planned({w8a8}));
  EXPECT_TRUE(std::isinf(engine.max_activation));
}

TEST(PlanPrecision, holds_the_head_as_asked) {
  REQUIRE_OK(const EngineSpec standard, planned({fp8}));
  EXPECT_EQ(standard.quantize_head, std::nullopt);
  REQUIRE_OK(const EngineSpec coded, planned({fp8, "model.quantize_lm_head=true"}));
  EXPECT_EQ(coded.quantize_head, true);
  REQUIRE_OK(const EngineSpec plain, planned({w8a8, "model.quantize_lm_head=false"}));
  EXPECT_EQ(plain.quantize_head, false);
}

TEST(PlanPrecision, rounds_activations_to_int8_on_cpus_and_gpus_that_are_not_deterministic) {
  REQUIRE_OK(const EngineSpec on_cpu, planned({w8a8, "engine.deterministic=true"}));
  EXPECT_EQ(on_cpu.encoding, WeightEncoding::w8a8);
  REQUIRE_OK(const EngineSpec on_gpu, planned({w8a8, bf16}, "llama-a", 1));
  EXPECT_EQ(on_gpu.encoding, WeightEncoding::w8a8);
  const auto deterministic = planned({w8a8, bf16, "engine.deterministic=true"}, "llama-a", 1);
  ASSERT_FALSE(deterministic.ok());
  EXPECT_THAT(deterministic.error().message,
              AllOf(HasSubstr("model.quantization: w8a8"), HasSubstr("engine.deterministic")));
}

TEST(PlanPrecision, has_a_bound_where_layers_may_fall_back) {
  REQUIRE_OK(const EngineSpec standard, planned({w8a8, fallback}));
  EXPECT_EQ(standard.max_activation, 448.0F);
  REQUIRE_OK(const EngineSpec own, planned({w8a8, fallback, "precision.max_activation=20.5"}));
  EXPECT_EQ(own.max_activation, 20.5F);
  REQUIRE_OK(const EngineSpec of_gpu, planned({fp8, fallback, bf16}, "llama-a", 1));
  EXPECT_EQ(of_gpu.max_activation, 448.0F);
  REQUIRE_OK(const EngineSpec of_bytes, planned({w8a8, fallback, bf16}, "llama-a", 1));
  EXPECT_EQ(of_bytes.max_activation, 448.0F);
  REQUIRE_OK(const EngineSpec of_experts, planned({fp8, fallback, bf16}, "qwen3moe-a", 1));
  EXPECT_EQ(of_experts.max_activation, 448.0F);
}

TEST(PlanPrecision, refuses_what_has_nothing_to_fall_back_from_and_says_what_to_do) {
  struct Refusal {
    std::vector<std::string> settings;
    const char* why;
    const char* remedy;
    int gpus = 0;
  };
  const std::vector<Refusal> refusals = {
      {{fallback}, "model.quantization: none", "set model.quantization: w8a8"},
      {{fallback, "model.quantization=int8"}, "model.quantization: int8", "w8a8"},
      {{fallback, fp8}, "on CPUs", "model.quantization: w8a8"},
      {{fallback, w8a8, "engine.deterministic=true"},
       "timing",
       "engine.deterministic back to auto"},
      {{fallback, bf16, "model.quantization=int8"}, "on GPUs", "set model.quantization: fp8", 1},
  };
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.settings.back());
    const auto engine = planned(refusal.settings, "llama-a", refusal.gpus);
    ASSERT_FALSE(engine.ok());
    EXPECT_EQ(engine.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(engine.error().message, AllOf(HasSubstr("precision.fallback: "),
                                              HasSubstr(refusal.why), HasSubstr(refusal.remedy)));
  }
  const auto alone = planned({"precision.max_activation=100"});
  ASSERT_FALSE(alone.ok());
  EXPECT_THAT(alone.error().message, HasSubstr("precision.fallback"));
}

}  // namespace
}  // namespace troupe
