#include "models/layers/attention/attention_shape.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(AttentionShape, of_grouped_queries_is_that_of_the_ranks_own_heads) {
  ModelConfig config;
  config.layers = 2;
  config.heads = 8;
  config.kv_heads = 2;
  config.head_dim = 64;
  config.windows = {0, 128};
  const auto shape = attention_shape(config, 1, {0, 4});
  ASSERT_TRUE(shape.ok()) << shape.error().message;
  EXPECT_EQ(shape->heads, 2);
  EXPECT_EQ(shape->kv_heads, 1);
  EXPECT_EQ(shape->value_dim(), 64);
  EXPECT_EQ(shape->window, 128);
  EXPECT_FLOAT_EQ(shape->scale, 0.125F);
  EXPECT_EQ(shape->cached_elements(), 2 * 64);
  EXPECT_EQ(attention_shape(config, 0, {0, 4})->window, 0);
}

TEST(AttentionShape, of_latent_attention_has_one_kv_head_on_every_rank) {
  ModelConfig config;
  config.layers = 1;
  config.heads = 8;
  config.kv_heads = 1;
  config.head_dim = 192;
  config.latent = LatentConfig{.rank = 512, .unrotated_dim = 128, .rotated_dim = 64};
  const auto shape = attention_shape(config, 0, {1, 2});
  ASSERT_TRUE(shape.ok()) << shape.error().message;
  EXPECT_EQ(shape->heads, 4);
  EXPECT_EQ(shape->kv_heads, 1);
  EXPECT_EQ(shape->head_dim, 576);
  EXPECT_EQ(shape->value_dim(), 512);
  EXPECT_EQ(shape->cached_elements(), 576);
  EXPECT_NEAR(shape->scale, 0.07216878364870323, 1e-8);
  EXPECT_FALSE(attention_shape(config, 0, {0, 3}).ok()) << "3 ranks, 8 heads";

  // DeepSeek-V3's: 0.1 ln(40) + 1, squared.
  config.rope.scaling = YarnRopeScaling{.factor = 40.0, .attention_factor = 1.8738542070926265};
  EXPECT_NEAR(attention_shape(config, 0, {1, 2})->scale, 0.13523377, 1e-7);
}

TEST(AttentionHeads, are_split_over_context_ranks_where_each_has_kv_heads) {
  ModelConfig config;
  config.heads = 32;
  config.kv_heads = 8;
  EXPECT_TRUE(context_shares_heads(config, {.context = 2}));
  EXPECT_TRUE(context_shares_heads(config, {.context = 4, .tensor = 2}));
  EXPECT_FALSE(context_shares_heads(config, {.context = 3})) << "3 ranks, 8 KV heads";
  EXPECT_FALSE(context_shares_heads(config, {.context = 4, .tensor = 4})) << "16 ranks";
  EXPECT_FALSE(context_shares_heads(config, {.tensor = 4})) << "no context ranks";
  config.query_key_norm = QueryKeyNorm::projection;
  EXPECT_FALSE(context_shares_heads(config, {.context = 2})) << "norms over all heads";
  config.query_key_norm = QueryKeyNorm::heads;
  EXPECT_TRUE(context_shares_heads(config, {.context = 2}));
  config.latent = LatentConfig();
  EXPECT_FALSE(context_shares_heads(config, {.context = 2})) << "one latent for all heads";
}

TEST(AttentionHeads, of_a_tensor_rank_are_those_of_its_context_ranks_in_order) {
  ModelConfig config;
  config.heads = 32;
  config.kv_heads = 8;
  const auto mesh = Mesh::create({.pipeline = 2, .context = 2, .tensor = 2});
  ASSERT_TRUE(mesh.ok()) << mesh.error().message;
  std::vector<int> shards;
  for (int rank = 0; rank < mesh->world_size(); ++rank) {
    EXPECT_EQ(head_shard(config, *mesh, rank).size, 4);
    shards.push_back(head_shard(config, *mesh, rank).rank);
  }
  EXPECT_THAT(shards, testing::ElementsAre(0, 2, 1, 3, 0, 2, 1, 3));
  config.kv_heads = 2;  // all heads of their tensor rank
  EXPECT_EQ(head_shard(config, *mesh, 2).size, 2);
  EXPECT_EQ(head_shard(config, *mesh, 2).rank, 0);
}

}  // namespace
}  // namespace troupe
