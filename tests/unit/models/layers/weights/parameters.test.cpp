#include "models/layers/weights/parameters.hpp"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/families/family.hpp"

namespace troupe {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

ModelConfig small_config() {
  ModelConfig config;
  config.architecture = "Qwen3MoeForCausalLM";
  config.hidden_size = 8;
  config.layers = 3;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 6;
  config.intermediate_size = 20;
  config.vocab_size = 50;
  config.moe = MoeConfig{.experts = 4, .top_k = 2, .intermediate_size = 10, .dense_layers = {1}};
  return config;
}

std::set<std::string> names_in_use(const ModelConfig& config) {
  std::set<std::string> names;
  for (const WeightUse& use : weights_in_use(config, family_of(config).weights)) {
    names.insert(checkpoint_name(*use.rule, use.layer, use.expert));
  }
  return names;
}

TEST(Parameters, of_sparse_layers_are_experts_and_of_others_a_dense_mlp) {
  const auto names = names_in_use(small_config());
  EXPECT_THAT(names, Contains("model.layers.0.mlp.gate.weight"));
  EXPECT_THAT(names, Contains("model.layers.2.mlp.experts.3.down_proj.weight"));
  EXPECT_THAT(names, Not(Contains("model.layers.2.mlp.experts.4.down_proj.weight")));
  EXPECT_THAT(names, Not(Contains("model.layers.0.mlp.up_proj.weight")));
  EXPECT_THAT(names, Contains("model.layers.1.mlp.up_proj.weight"));
  EXPECT_THAT(names, Not(Contains("model.layers.1.mlp.gate.weight")));
  EXPECT_THAT(names, Not(Contains("model.layers.1.mlp.experts.0.up_proj.weight")));
  EXPECT_THAT(names, Not(Contains("model.layers.3.self_attn.q_proj.weight")));
}

TEST(Parameters, have_a_head_only_where_it_is_not_the_embedding) {
  ModelConfig config = small_config();
  EXPECT_THAT(names_in_use(config), Contains("lm_head.weight"));
  config.tie_word_embeddings = true;
  EXPECT_THAT(names_in_use(config), Not(Contains("lm_head.weight")));
}

TEST(Parameters, have_the_shapes_that_the_config_implies) {
  const ModelConfig config = small_config();
  EXPECT_EQ(shape_of(Parameter::query, config), Shape({24, 8}));
  EXPECT_EQ(shape_of(Parameter::key, config), Shape({12, 8}));
  EXPECT_EQ(shape_of(Parameter::output, config), Shape({8, 24}));
  EXPECT_EQ(shape_of(Parameter::key_norm, config), Shape({6}));
  EXPECT_EQ(shape_of(Parameter::down, config), Shape({8, 20}));
  EXPECT_EQ(shape_of(Parameter::expert_up, config), Shape({10, 8}));
  EXPECT_EQ(shape_of(Parameter::router, config), Shape({4, 8}));
  EXPECT_EQ(shape_of(Parameter::head, config), Shape({50, 8}));
}

TEST(Parameters, have_biases_where_the_config_says_so) {
  ModelConfig config = small_config();
  const std::string of_query = "model.layers.1.self_attn.q_proj.bias";
  const std::string of_output = "model.layers.1.self_attn.o_proj.bias";
  EXPECT_THAT(names_in_use(config), AllOf(Not(Contains(of_query)), Not(Contains(of_output))));
  config.qkv_bias = true;
  EXPECT_THAT(names_in_use(config), AllOf(Contains(of_query), Not(Contains(of_output))));
  config.output_bias = true;
  EXPECT_THAT(names_in_use(config), Contains(of_output));
  EXPECT_EQ(shape_of(Parameter::query_bias, config), Shape({24}));
  EXPECT_EQ(shape_of(Parameter::value_bias, config), Shape({12}));
  EXPECT_EQ(shape_of(Parameter::output_bias, config), Shape({8}));
}

TEST(Parameters, of_dense_layers_have_mlp_biases_where_the_config_says_so) {
  ModelConfig config = small_config();
  config.architecture = "LlamaForCausalLM";
  EXPECT_THAT(names_in_use(config), Not(Contains(HasSubstr("mlp.gate_proj.bias"))));
  config.mlp_bias = true;
  EXPECT_THAT(names_in_use(config), AllOf(Contains("model.layers.1.mlp.gate_proj.bias"),
                                          Contains("model.layers.1.mlp.up_proj.bias"),
                                          Contains("model.layers.1.mlp.down_proj.bias")));
  EXPECT_EQ(shape_of(Parameter::gate_bias, config), Shape({20}));
  EXPECT_EQ(shape_of(Parameter::down_bias, config), Shape({8}));
}

TEST(Parameters, of_latent_attention_have_its_ranks) {
  ModelConfig config = small_config();
  config.architecture = "DeepseekV3ForCausalLM";
  config.kv_heads = 1;
  config.head_dim = 10;
  config.latent = LatentConfig{
      .query_rank = 7, .rank = 16, .unrotated_dim = 6, .rotated_dim = 4, .value_dim = 5};
  config.moe->choice_bias = true;
  config.moe->shared_intermediate_size = 10;
  EXPECT_EQ(shape_of(Parameter::query_down, config), Shape({7, 8}));
  EXPECT_EQ(shape_of(Parameter::query_up, config), Shape({40, 7}));
  EXPECT_EQ(shape_of(Parameter::latent_down, config), Shape({20, 8}));
  EXPECT_EQ(shape_of(Parameter::latent_up, config), Shape({44, 16}));
  EXPECT_EQ(shape_of(Parameter::output, config), Shape({8, 20}));
  const auto names = names_in_use(config);
  EXPECT_THAT(names, Contains("model.layers.0.self_attn.q_b_proj.weight"));
  EXPECT_THAT(names, Not(Contains("model.layers.0.self_attn.q_proj.weight")));
  EXPECT_THAT(names, Contains("model.layers.0.mlp.gate.e_score_correction_bias"));
  EXPECT_THAT(names, Contains("model.layers.2.mlp.shared_experts.up_proj.weight"));
  EXPECT_THAT(names, Not(Contains("model.layers.1.mlp.shared_experts.up_proj.weight")));
  config.latent->query_rank = 0;
  EXPECT_THAT(names_in_use(config),
              AllOf(Contains("model.layers.0.self_attn.q_proj.weight"),
                    Not(Contains("model.layers.0.self_attn.q_a_proj.weight"))));
}

}  // namespace
}  // namespace troupe
