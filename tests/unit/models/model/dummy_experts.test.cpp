#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "models/model/model.hpp"
#include "models/ops/cpu/cpu_ops.hpp"
#include "tests/golden/support/runner.hpp"
#include "tests/support/require.hpp"

namespace troupe {
namespace {

constexpr std::int64_t layers = 6, experts = 64, tokens = 256, top_k = 4;

ModelConfig many_experts() {
  ModelConfig config;
  config.architecture = "Qwen3MoeForCausalLM";
  config.hidden_size = 128;
  config.layers = layers;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 32;
  config.intermediate_size = 64;
  config.vocab_size = 2 * tokens;
  config.max_position_embeddings = tokens;
  config.query_key_norm = QueryKeyNorm::heads;
  MoeConfig& moe = config.moe.emplace();
  moe.experts = experts;
  moe.top_k = top_k;
  moe.intermediate_size = 32;
  moe.normalize_top_k = true;
  return config;
}

// Benches of experts measure with dummy weights: their products and the ranks' shares must be those
// of a model whose router was trained to spread tokens.
TEST(DummyExperts, all_get_about_as_many_tokens_in_every_layer) {
  const ModelConfig config = many_experts();
  REQUIRE_OK(const auto ops, make_cpu_ops({}));
  REQUIRE_OK(const Checkpoint checkpoint, Checkpoint::dummy(DType::f32));
  REQUIRE_OK(const auto model, load_model(config, checkpoint, *ops, {},
                                          {.max_batch_tokens = tokens, .max_head_rows = tokens}));
  REQUIRE_OK(const auto runner, golden::Runner::create(*ops, *model, 2 * tokens / 16));
  golden::Sequence sequence;
  sequence.tokens.resize(tokens);
  std::iota(sequence.tokens.begin(), sequence.tokens.end(), 0);
  // The last layer passes over tokens without logits.
  const golden::Share all{&sequence, tokens, tokens};
  REQUIRE_OK([[maybe_unused]] const Tensor logits, runner->pass({&all, 1}));

  const ExpertLoad load = model->expert_load();
  ASSERT_EQ(load.layers, layers);
  ASSERT_EQ(load.experts, experts);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const std::span rows(load.rows.data() + layer * experts, static_cast<std::size_t>(experts));
    ASSERT_EQ(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}), tokens * top_k);
    const auto used = experts - std::ranges::count(rows, 0);
    EXPECT_GE(used, experts * 3 / 4) << "in layer " << layer;
    EXPECT_LE(std::ranges::max(rows), 10 * tokens * top_k / experts) << "in layer " << layer;
  }
}

}  // namespace
}  // namespace troupe
