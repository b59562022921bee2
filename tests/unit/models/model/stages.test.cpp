#include "models/model/stages.hpp"

#include <gtest/gtest.h>

#include "models/families/family.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/support/require.hpp"
#include "tests/support/source_path.hpp"

namespace troupe {
namespace {

using Counts = std::vector<std::int64_t>;

ModelConfig dense_model(std::int64_t layers, std::int64_t vocab_size) {
  ModelConfig config;
  config.hidden_size = 256;
  config.layers = layers;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 64;
  config.intermediate_size = 512;
  config.vocab_size = vocab_size;
  config.max_position_embeddings = 2048;
  return config;
}

Counts layers_of(const ModelConfig& config, int stages) {
  const auto slices = stage_layers(config, stages);
  EXPECT_TRUE(slices.ok()) << slices.error().message;
  Counts counts;
  for (const Slice& slice : *slices) counts.push_back(slice.count);
  return counts;
}

TEST(Stages, count_what_a_token_passes_through) {
  ModelConfig config = dense_model(3, 4096);
  const std::int64_t attention = 256 * 64 * (4 + 2 + 2 + 4) + 2 * 4 * 64 * 512;
  const std::int64_t dense = 3 * 256 * 512;
  const std::int64_t head = 4096 * 256 / 2;
  EXPECT_EQ(layer_costs(config),
            (Counts{attention + dense + 256, attention + dense, attention + dense + head}));
  config.moe = MoeConfig{.experts = 16, .top_k = 4, .intermediate_size = 128, .dense_layers = {1}};
  const std::int64_t sparse = 256 * 16 + 4 * 3 * 256 * 128;
  EXPECT_EQ(layer_costs(config),
            (Counts{attention + sparse + 256, attention + dense, attention + sparse + head}));
  config.max_position_embeddings = 100;
  EXPECT_EQ(layer_costs(config)[1], attention - 2 * 4 * 64 * (512 - 100) + dense);
}

TEST(Stages, count_a_window_as_the_context_that_it_leaves) {
  ModelConfig config = dense_model(2, 1000);
  const std::int64_t full = layer_costs(config)[0];
  config.windows = {128, 0};
  EXPECT_EQ(layer_costs(config)[0], full - 2 * 4 * 64 * (512 - 128));
  EXPECT_EQ(layer_costs(config)[1], layer_costs(dense_model(2, 1000))[1]);
}

TEST(Stages, count_latent_attention_by_its_ranks_and_shared_experts_by_their_size) {
  ModelConfig config = dense_model(3, 1000);
  config.kv_heads = 1;
  config.head_dim = 48;
  config.latent = LatentConfig{
      .query_rank = 96, .rank = 64, .unrotated_dim = 32, .rotated_dim = 16, .value_dim = 24};
  config.moe = MoeConfig{.experts = 16,
                         .top_k = 4,
                         .intermediate_size = 32,
                         .dense_layers = {},
                         .shared_intermediate_size = 64};
  const std::int64_t query = 256 * 96 + 96 * 4 * 48;
  const std::int64_t latent = 256 * (64 + 16) + 4 * 64 * (32 + 24);
  const std::int64_t attention = query + latent + 256 * 4 * 24 + 4 * (64 + 64 + 16) * 512;
  EXPECT_EQ(layer_costs(config)[1], attention + 256 * (16 + 4 * 3 * 32 + 3 * 64));
}

TEST(Stages, count_on_a_gpu_what_is_read_for_a_sampled_token) {
  ModelConfig config = dense_model(3, 4096);
  const std::int64_t projections = 256 * 64 * (4 + 2 + 2 + 4);
  const std::int64_t dense = 3 * 256 * 512;
  const std::int64_t cached = 2 * 2 * 64 * 1536;
  const std::int64_t read = 158 * ((projections + dense) / 128 + cached);
  EXPECT_EQ(layer_costs(config, true)[1] - layer_costs(config)[1], read);
  EXPECT_EQ(layer_costs(config, true)[2] - layer_costs(config, true)[1], 158 * 4096 * 256 / 128);
  config.moe = MoeConfig{.experts = 16, .top_k = 4, .intermediate_size = 128, .dense_layers = {}};
  const std::int64_t experts = 256 * (16 + 16 * 3 * 128);
  EXPECT_EQ(layer_costs(config, true)[1] - layer_costs(config)[1],
            158 * ((projections + experts) / 128 + cached));
  config.windows = {0, 128, 0};
  EXPECT_EQ(layer_costs(config, true)[1] - layer_costs(config)[1],
            158 * ((projections + experts) / 128 + 2 * 2 * 64 * 128));
}

TEST(Stages, of_the_measured_models_are_even_on_gpus_where_experts_outweigh_the_head) {
  REQUIRE_OK(const auto dense, load_model_config(test::source_path("configs/bench/qwen3-8b")));
  REQUIRE_OK(const auto sparse,
             load_model_config(test::source_path("configs/bench/qwen3-30b-a3b")));
  for (const auto& [config, counts] :
       {std::pair{dense, Counts{9, 9, 9, 9}}, std::pair{sparse, Counts{12, 12, 12, 12}}}) {
    Counts found;
    REQUIRE_OK(const auto slices, stage_layers(config, 4, true));
    for (const Slice& slice : slices) found.push_back(slice.count);
    EXPECT_EQ(found, counts);
  }
}

TEST(Stages, of_a_small_vocabulary_share_layers_evenly_and_a_large_one_takes_some_from_the_last) {
  EXPECT_EQ(layers_of(dense_model(8, 1000), 2), (Counts{4, 4}));
  EXPECT_EQ(layers_of(dense_model(8, 32'000), 2), (Counts{6, 2}));
}

TEST(Stages, of_the_models_that_come_with_the_program) {
  REQUIRE_OK(const auto demo, load_model_config(test::source_path("configs/demo/fable-moe")));
  EXPECT_EQ(layers_of(demo, 1), (Counts{4}));
  EXPECT_EQ(layers_of(demo, 2), (Counts{2, 2}));
  EXPECT_EQ(layers_of(demo, 4), (Counts{1, 1, 1, 1}));
  REQUIRE_OK(const auto tiny, load_model_config(golden::data_folder() / "qwen3moe-a"));
  EXPECT_EQ(layers_of(tiny, 2), (Counts{2, 1}));
  EXPECT_EQ(layers_of(tiny, 3), (Counts{1, 1, 1}));
}

TEST(Stages, must_not_be_more_than_the_layers) {
  const auto refused = stage_layers(dense_model(4, 1000), 8);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(refused.error().message, "pipeline_parallel_size 8 does not fit the model's 4 layers");
  EXPECT_FALSE(stage_layers(dense_model(4, 1000), 0).ok());
}

}  // namespace
}  // namespace troupe
