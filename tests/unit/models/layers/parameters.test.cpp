#include "models/layers/parameters.hpp"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/families/family.hpp"

namespace troupe {
namespace {

using testing::Contains;
using testing::Not;

ModelConfig small_config() {
  ModelConfig config;
  config.architecture = Architecture::qwen3_moe;
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
  for (const WeightUse& use : weights_in_use(config, family_of(config.architecture).weights)) {
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

}  // namespace
}  // namespace troupe
