// The keys of config.json that single families have, and what is taken where they are absent. The
// defaults are those of transformers 4.57.6.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/require.hpp"
#include "tests/unit/models/families/changed_config.hpp"

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Key {
  const char* model;
  const char* key;
  nlohmann::json value;
};

TEST(FamilyKeys, are_refused_with_values_that_the_layers_do_not_compute) {
  const std::vector<Key> refused = {
      {"cohere-a", "use_qk_norm", true},
      {"falcon-a", "alibi", true},
      {"falcon-a", "parallel_attn", false},
      {"falcon-b", "num_ln_in_parallel_attn", 2},
      {"gptoss-a", "swiglu_limit", 5.0},
      {"gptoss-a", "quantization_config", {{"quant_method", "quark"}}},
      {"gemma3-a", "use_bidirectional_attention", true},
      {"deepseek2-a", "norm_topk_prob", true},
      {"deepseek2-a", "topk_method", "noaux_tc"},
      {"deepseek2-a", "scoring_func", "sigmoid"},
      {"deepseek2-a", "attention_bias", true},
      {"deepseek32-a", "q_lora_rank", nullptr},
      {"deepseek32-a", "mlp_layer_types", {"dense", "dense", "sparse"}},
      {"deepseek32-a", "attention_bias", true},
      {"glm4moe-a", "scoring_func", "softmax"},
      {"olmo2-a", "partial_rotary_factor", 0.5},
      {"granite-a", "partial_rotary_factor", 0.5},
      {"starcoder2-a", "hidden_act", "silu"},
      {"gemma2-a", "hidden_activation", "gelu"},
      {"falcon-a", "activation", "relu"},
  };
  for (const Key& one : refused) {
    const auto config =
        load_changed(one.model, [&](nlohmann::json& object) { object[one.key] = one.value; });
    ASSERT_FALSE(config.ok()) << one.model << ", " << one.key << " = " << one.value;
    EXPECT_EQ(config.error().code, ErrorCode::unsupported) << config.error().message;
    EXPECT_THAT(config.error().message, HasSubstr(one.key));
  }
}

using Number = double (*)(const ModelConfig&);

/// A key's value, and the number that it becomes.
struct ReadKey {
  const char* model;
  const char* key;
  nlohmann::json value;  ///< discarded: the key is erased
  Number number;
  double expected;
};

const nlohmann::json absent(nlohmann::json::value_t::discarded);

void expect_reads(const std::vector<ReadKey>& keys) {
  for (const ReadKey& one : keys) {
    SCOPED_TRACE(testing::Message() << one.model << ", " << one.key << " = " << one.value);
    REQUIRE_OK(const auto config, load_changed(one.model, [&](nlohmann::json& object) {
                 if (one.value.is_discarded()) {
                   object.erase(one.key);
                 } else {
                   object[one.key] = one.value;
                 }
               }));
    EXPECT_FLOAT_EQ(static_cast<float>(one.number(config)), static_cast<float>(one.expected));
  }
}

TEST(FamilyKeys, are_read_into_what_the_layers_compute_with) {
  const Number logit_scale = [](const ModelConfig& c) -> double { return c.logit_scale; };
  const Number score_scale = [](const ModelConfig& c) { return c.attention_scale; };
  const Number score_cap = [](const ModelConfig& c) -> double { return c.attention_soft_cap; };
  const Number logit_cap = [](const ModelConfig& c) -> double { return c.logit_soft_cap; };
  const Number own_norm = [](const ModelConfig& c) -> double { return c.form.own_mlp_norm; };
  const Number parallel = [](const ModelConfig& c) -> double { return c.form.parallel; };
  const Number mlp_bias = [](const ModelConfig& c) -> double { return c.mlp_bias; };
  const Number qkv_bias = [](const ModelConfig& c) -> double { return c.qkv_bias; };
  const Number kv_heads = [](const ModelConfig& c) -> double { return c.kv_heads; };
  const Number groups = [](const ModelConfig& c) -> double { return c.moe->groups; };
  const Number shared = [](const ModelConfig& c) -> double {
    return c.moe->shared_intermediate_size;
  };
  const Number embedding = [](const ModelConfig& c) -> double { return c.embedding_scale; };
  const Number residual = [](const ModelConfig& c) -> double { return c.form.residual_scale; };
  const Number norms_heads = [](const ModelConfig& c) -> double {
    return c.query_key_norm == QueryKeyNorm::heads;
  };
  const Number index_top_k = [](const ModelConfig& c) -> double { return c.latent->index_top_k; };
  const Number index_dim = [](const ModelConfig& c) -> double { return c.latent->index_dim; };
  const Number length = [](const ModelConfig& c) -> double { return c.max_position_embeddings; };
  expect_reads({
      {"cohere-a", "logit_scale", 0.25, logit_scale, 0.25},
      {"cohere-a", "logit_scale", absent, logit_scale, 0.0625},
      {"cohere-a", "model_max_length", 131072, length, 131072},
      {"cohere-a", "model_max_length", nullptr, length, 512},
      {"llama-a", "model_max_length", 131072, length, 2048},
      {"gemma2-a", "query_pre_attn_scalar", 64, score_scale, 0.125},
      {"gemma2-a", "query_pre_attn_scalar", absent, score_scale, 0.0625},
      {"gemma2-a", "attn_logit_softcapping", absent, score_cap, 50},
      {"gemma2-a", "attn_logit_softcapping", nullptr, score_cap, 0},
      {"gemma2-a", "final_logit_softcapping", absent, logit_cap, 30},
      {"gemma3-a", "final_logit_softcapping", absent, logit_cap, 0},
      {"gemma3-a", "max_position_embeddings", 1024, length, 1024},
      {"granite-a", "attention_multiplier", 0.5, score_scale, 0.5},
      {"granite-a", "logits_scaling", 8.0, logit_scale, 0.125},
      {"granite-a", "embedding_multiplier", 12.0, embedding, 12.0},
      {"granite-a", "residual_multiplier", 0.22, residual, 0.22},
      {"falcon-a", "num_ln_in_parallel_attn", 1, own_norm, 0},
      {"falcon-a", "num_ln_in_parallel_attn", nullptr, own_norm, 1},
      {"falcon-a", "bias", false, mlp_bias, 0},
      {"falcon-a", "num_kv_heads", absent, kv_heads, 4},
      {"falcon-b", "parallel_attn", false, parallel, 0},
      {"falcon-b", "multi_query", false, kv_heads, 4},
      {"starcoder2-a", "use_bias", false, mlp_bias, 0},
      {"starcoder2-a", "use_bias", absent, mlp_bias, 1},
      {"qwen2moe-a", "qkv_bias", false, qkv_bias, 0},
      {"glm4moe-a", "use_qk_norm", absent, norms_heads, 0},
      {"glm4moe-a", "use_qk_norm", true, norms_heads, 1},
      {"deepseek2-a", "topk_method", "greedy", groups, 1},
      {"deepseek32-a", "index_topk", absent, index_top_k, 2048},
      {"deepseek32-a", "index_topk", 64, index_top_k, 64},
      {"deepseek32-a", "index_head_dim", absent, index_dim, 128},
      {"deepseek2-a", "n_shared_experts", absent, shared, 2 * 32},
  });
}

TEST(FamilyKeys, of_the_number_of_kv_heads_have_a_default_of_each_family) {
  const std::vector<std::pair<const char*, std::int64_t>> defaults = {
      {"llama-a", 96},    {"mistral-a", 8},  {"mixtral-a", 8},    {"qwen2-a", 32},
      {"qwen2moe-a", 16}, {"qwen3moe-a", 4}, {"gptoss-a", 8},     {"glm-a", 2},
      {"glm4-a", 2},      {"glm4moe-a", 8},  {"starcoder2-a", 2}, {"olmo2-a", 96},
  };
  const auto with = [](const char* model, bool is_null) {
    return load_changed(model, [&](nlohmann::json& object) {
      object["num_attention_heads"] = 96;
      object["head_dim"] = 32;
      object.erase("num_key_value_heads");
      if (is_null) object["num_key_value_heads"] = nullptr;
    });
  };
  for (const auto& [model, expected] : defaults) {
    REQUIRE_OK(const auto config, with(model, false));
    EXPECT_EQ(config.kv_heads, expected) << model;
    REQUIRE_OK(const auto null, with(model, true));
    EXPECT_EQ(null.kv_heads, 96) << model << ": null stands for as many as heads";
  }
}

TEST(FamilyKeys, of_mixtrals_norms_and_rope_have_its_own_defaults) {
  REQUIRE_OK(const auto config, load_changed("mixtral-a", [](nlohmann::json& object) {
               object.erase("rms_norm_eps");
               object.erase("rope_parameters");
             }));
  EXPECT_FLOAT_EQ(config.norm.eps, 1e-5F);
  EXPECT_EQ(config.rope.theta, 1e6);
}

TEST(FamilyKeys, of_gpt_oss_make_its_rope_yarn_times_32_where_they_are_absent) {
  const auto changed = [](const std::function<void(nlohmann::json&)>& change) {
    return load_changed("gptoss-a", [&](nlohmann::json& object) {
      object.erase("rope_parameters");
      object["max_position_embeddings"] = 131072;
      change(object);
    });
  };
  REQUIRE_OK(const auto config, changed([](nlohmann::json&) {}));
  EXPECT_EQ(config.rope.theta, 150000.0);
  EXPECT_EQ(config.max_position_embeddings, 131072);
  const auto* yarn = std::get_if<YarnRopeScaling>(&config.rope.scaling);
  ASSERT_NE(yarn, nullptr);
  EXPECT_EQ(yarn->factor, 32.0);
  EXPECT_EQ(yarn->original_positions, 4096.0);
  EXPECT_FALSE(yarn->whole_dimensions);
  EXPECT_NEAR(yarn->table_factor, 0.1 * std::log(32.0) + 1.0, 1e-12);
  REQUIRE_OK(const auto plain,
             changed([](nlohmann::json& object) { object["rope_scaling"] = nullptr; }));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(plain.rope.scaling));
}

TEST(FamilyKeys, of_phi_3_are_the_factors_of_longrope) {
  REQUIRE_OK(const auto config, load_changed("phi3-a", [](nlohmann::json&) {}));
  EXPECT_EQ(config.rotary_dim, 12);
  const auto& scaling = std::get<LongRopeScaling>(config.rope.scaling);
  EXPECT_THAT(scaling.short_factors, ElementsAre(1.0, 1.1, 1.2, 1.3, 1.4, 1.5));
  EXPECT_THAT(scaling.long_factors, ElementsAre(1.0, 1.5, 2.5, 4.0, 8.0, 16.0));
  EXPECT_EQ(scaling.original_positions, 32.0);
  EXPECT_NEAR(scaling.table_factor, std::sqrt(1.0 + std::log(16.0) / std::log(32.0)), 1e-12);
  EXPECT_EQ(config.max_position_embeddings, 512);

  REQUIRE_OK(const auto absent_length, load_changed("phi3-a", [](nlohmann::json& object) {
               object["rope_parameters"].erase("original_max_position_embeddings");
               object["max_position_embeddings"] = 131072;
             }));
  EXPECT_EQ(std::get<LongRopeScaling>(absent_length.rope.scaling).original_positions, 4096.0);

  const auto few = load_changed("phi3-a", [](nlohmann::json& object) {
    object["rope_parameters"]["long_factor"] = {1.0, 2.0};
  });
  ASSERT_FALSE(few.ok());
  EXPECT_THAT(few.error().message, HasSubstr("long_factor: expected a list of 6 positive numbers"));
}

TEST(FamilyKeys, of_the_rotated_part_are_read_beside_and_inside_of_the_ropes) {
  const auto rotated = [](const std::function<void(nlohmann::json&)>& change) {
    const auto config = load_changed("glm-a", change);
    EXPECT_TRUE(config.ok()) << config.error().message;
    return config->rotated_dim();
  };
  EXPECT_EQ(rotated([](nlohmann::json& object) {
              object.erase("rope_parameters");
              object["partial_rotary_factor"] = 0.25;
            }),
            4);
  EXPECT_EQ(rotated([](nlohmann::json& object) { object.erase("rope_parameters"); }), 8);
  const auto odd = load_changed("glm-a", [](nlohmann::json& object) {
    object["rope_parameters"]["partial_rotary_factor"] = 0.2;
  });
  ASSERT_FALSE(odd.ok());
  EXPECT_THAT(odd.error().message, HasSubstr("partial_rotary_factor"));
}

}  // namespace
}  // namespace troupe
