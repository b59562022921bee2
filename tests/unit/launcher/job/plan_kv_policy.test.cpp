#include "launcher/job/plan_kv_policy.hpp"

#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/families/family.hpp"
#include "tests/support/require.hpp"
#include "tests/support/source_path.hpp"

namespace troupe {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The policy of a job with these settings, for the model of a golden folder.
Result<KvPolicy> planned(const std::vector<std::string>& settings,
                         const std::string& model = "llama-a", const EngineSpec& engine = {}) {
  std::vector<Override> overrides;
  for (const std::string& setting : settings) {
    TROUPE_TRY(Override made, parse_override(setting));
    overrides.push_back(std::move(made));
  }
  TROUPE_TRY(const Config config,
             parse_config("model: {path: somewhere}\n", "job.yaml", overrides, Purpose::check));
  TROUPE_TRY(const ModelConfig read,
             load_model_config(test::source_path("tests/data/golden") / model));
  return plan_kv_policy(config, read, engine);
}

const std::string no_prefixes = "engine.enable_prefix_caching=false";

TEST(PlanKvPolicy, keeps_every_token_by_default) {
  REQUIRE_OK(const KvPolicy policy, planned({}));
  EXPECT_TRUE(policy.is_full());
  EXPECT_EQ(describe(policy), "full");
}

TEST(PlanKvPolicy, fills_in_the_numbers_of_each_policy) {
  REQUIRE_OK(const KvPolicy streaming, planned({"kv_cache.policy=streaming", no_prefixes}));
  EXPECT_EQ(describe(streaming), "streaming: 4 first and 1020 last tokens, 127 dropped at once");
  REQUIRE_OK(const KvPolicy snapkv, planned({"kv_cache.policy=snapkv", no_prefixes}));
  EXPECT_EQ(describe(snapkv), "snapkv: 1024 tokens of a prompt, 32 of them the last, pooled by 5");
  REQUIRE_OK(const KvPolicy h2o, planned({"kv_cache.policy=h2o", no_prefixes}));
  EXPECT_EQ(describe(h2o), "h2o: 1024 tokens, 512 of them the last, 64 dropped at once");
}

struct Refusal {
  std::vector<std::string> settings;
  const char* names;   ///< what the message names
  const char* remedy;  ///< and what to do
  const char* model = "llama-a";
};

TEST(PlanKvPolicy, refuses_what_does_not_go_with_dropped_tokens_and_says_what_to_do) {
  const std::string streaming = "kv_cache.policy=streaming", snapkv = "kv_cache.policy=snapkv";
  const std::string h2o = "kv_cache.policy=h2o";
  const std::vector<Refusal> refusals = {
      {{streaming}, "a block that others share", "engine.enable_prefix_caching: false"},
      {{h2o, no_prefixes, "engine.speculative_method=ngram"},
       "guess",
       "engine.speculative_method: none"},
      {{snapkv, no_prefixes, "engine.swap_space=1"}, "host memory", "engine.swap_space: 0"},
      {{streaming, no_prefixes, "engine.enable_chunked_prefill=false"},
       "several steps",
       "engine.enable_chunked_prefill: true"},
      {{streaming, no_prefixes, "kv_cache.window_tokens=4096"}, "2048 positions", "lower"},
      {{streaming, no_prefixes, "kv_cache.drop_tokens=1020"}, "drop_tokens is 1020", "less than"},
      {{snapkv, no_prefixes, "kv_cache.prompt_tokens=32"}, "window_tokens is 32", "less than"},
      {{snapkv, no_prefixes, "kv_cache.pooling_tokens=4"}, "pooling_tokens is 4", "odd"},
      {{h2o, no_prefixes, "kv_cache.drop_tokens=513"}, "drop_tokens is 513", "at most"},
      {{streaming, no_prefixes}, "windows", "full", "mistral-a"},
      {{h2o, no_prefixes}, "latent", "full", "deepseek3-a"},
      {{streaming, no_prefixes}, "chooses the keys", "full", "deepseek32-a"},
  };
  for (const Refusal& refusal : refusals) {
    const auto policy = planned(refusal.settings, refusal.model);
    ASSERT_FALSE(policy.ok()) << refusal.names;
    EXPECT_THAT(policy.error().message,
                AllOf(HasSubstr("kv_cache"), HasSubstr(refusal.names), HasSubstr(refusal.remedy)));
  }
}

TEST(PlanKvPolicy, refuses_context_ranks_and_shared_heads_but_no_gpus) {
  EngineSpec engine;
  engine.context_parallel_size = 2;
  const auto context = planned({"kv_cache.policy=streaming", no_prefixes}, "llama-a", engine);
  ASSERT_FALSE(context.ok());
  EXPECT_THAT(context.error().message, HasSubstr("parallel.context_parallel_size: 1"));
  engine = {};
  engine.tensor_parallel_size = 16;
  const auto shared_heads = planned({"kv_cache.policy=h2o", no_prefixes}, "llama-a", engine);
  ASSERT_FALSE(shared_heads.ok());
  EXPECT_THAT(shared_heads.error().message, HasSubstr("parallel.tensor_parallel_size: "));
  EXPECT_TRUE(planned({"kv_cache.policy=streaming", no_prefixes}, "llama-a", engine).ok());
  engine = {};
  engine.device = DeviceKind::cuda;
  for (const auto* policy : {"streaming", "snapkv", "h2o"}) {
    const std::string key = fmt::format("kv_cache.policy={}", policy);
    EXPECT_TRUE(planned({key, no_prefixes}, "llama-a", engine).ok()) << policy;
  }
}

TEST(PlanKvPolicy, refuses_policies_for_codes_of_8_bits_on_gpus) {
  EngineSpec engine;
  engine.kv_codes = DType::i8;
  for (const auto* policy : {"streaming", "snapkv", "h2o"}) {
    const std::string key = fmt::format("kv_cache.policy={}", policy);
    engine.device = DeviceKind::cpu;
    EXPECT_TRUE(planned({key, no_prefixes}, "llama-a", engine).ok()) << policy;
    engine.device = DeviceKind::cuda;
    const auto refused = planned({key, no_prefixes}, "llama-a", engine);
    ASSERT_FALSE(refused.ok()) << policy;
    EXPECT_THAT(refused.error().message, AllOf(HasSubstr("kv_cache.dtype is int8 on GPUs"),
                                               HasSubstr("Set kv_cache.dtype: auto")));
  }
  EXPECT_TRUE(planned({}, "llama-a", engine).ok());
}

}  // namespace
}  // namespace troupe
