#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/families/family.hpp"
#include "models/model/model.hpp"
#include "models/ops/cpu/cpu_ops.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/mesh_ranks.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/support/require.hpp"

namespace troupe {
namespace {

using golden::LoadedModel;
using golden::Sequence;
using testing::HasSubstr;

std::filesystem::path tiny_folder() { return golden::data_folder() / "qwen3moe-a"; }

Result<std::unique_ptr<Model>> load_tiny(Ops& ops, const ParallelContext& parallel,
                                         const ModelLimits& limits) {
  TROUPE_TRY(const ModelConfig config, load_model_config(tiny_folder()));
  TROUPE_TRY(const Checkpoint checkpoint, Checkpoint::open(tiny_folder()));
  return load_model(config, checkpoint, ops, parallel, limits);
}

TEST(DecoderModel, says_what_its_weights_and_a_kv_block_take) {
  REQUIRE_OK(const auto ops, make_cpu_ops({}));
  ModelLimits limits;
  REQUIRE_OK(const auto exact, load_tiny(*ops, {}, limits));
  // 3 layers x KV x 16 tokens x 2 heads x 32, in f32 and in bf16.
  EXPECT_EQ(exact->kv_bytes_per_block(), 3U * 2 * 16 * 2 * 32 * 4);
  limits.kv_dtype = DType::bf16;
  REQUIRE_OK(const auto rounded, load_tiny(*ops, {}, limits));
  EXPECT_EQ(rounded->kv_bytes_per_block(), 3U * 2 * 16 * 2 * 32 * 2);
  limits.kv_dtype = DType::i8;  // and an fp16 scale for each token and head
  REQUIRE_OK(const auto coded, load_tiny(*ops, {}, limits));
  EXPECT_EQ(coded->kv_bytes_per_block(), 3U * 2 * 16 * 2 * (32 + 2));
  limits.kv_dtype = DType::i4x2;
  REQUIRE_OK(const auto halves, load_tiny(*ops, {}, limits));
  EXPECT_EQ(halves->kv_bytes_per_block(), 3U * 2 * 16 * 2 * (16 + 2));
  limits.kv_residuals = {KvResidual::keys, {0, 2}};
  REQUIRE_OK(const auto mixed, load_tiny(*ops, {}, limits));
  EXPECT_EQ(mixed->kv_bytes_per_block(), (3U * 2 * (16 + 2) + 2 * 16) * 16 * 2);
  EXPECT_GE(exact->weight_bytes(), 600'000U);
  EXPECT_EQ(exact->limits().max_positions, 2048);
}

TEST(DecoderModel, refuses_passes_beyond_its_limits) {
  REQUIRE_OK(const auto ops, make_cpu_ops({}));
  REQUIRE_OK(const auto model, load_tiny(*ops, {}, {.max_batch_tokens = 4, .max_head_rows = 1}));
  const HostTensor ids(DType::i32, {5});
  const HostTensor logits(DType::f32, {2, 512});
  ForwardBatch batch;
  batch.token_ids = ids;
  EXPECT_THAT(model->forward(batch, logits).error().message, HasSubstr("a pass of 5 tokens"));
  batch.token_ids = ids->rows(0, 4);
  batch.head_rows = ids->rows(0, 2);
  EXPECT_THAT(model->forward(batch, logits).error().message, HasSubstr("logits of 2 rows"));
  batch.head_rows = ids->rows(0, 1);
  EXPECT_THAT(model->forward(batch, logits).error().message, HasSubstr("allocate_kv_cache"));
  ASSERT_TRUE(model->allocate_kv_cache(4).ok());
  EXPECT_THAT(model->forward(batch, logits).error().message, HasSubstr("0 groups"));
  const AttentionBatch nowhere;
  batch.attention = {&nowhere, 1};
  EXPECT_THAT(model->forward(batch, logits).error().message, HasSubstr("positions"));
  EXPECT_FALSE(model->allocate_kv_cache(4).ok());
}

TEST(DecoderModel, refuses_limits_that_cannot_be) {
  REQUIRE_OK(const auto ops, make_cpu_ops({}));
  EXPECT_THAT(load_tiny(*ops, {}, {.max_batch_tokens = 0}).error().message,
              HasSubstr("max_batch_tokens"));
  EXPECT_THAT(load_tiny(*ops, {}, {.max_positions = 4096}).error().message,
              HasSubstr("max_position_embeddings 2048"));
  EXPECT_THAT(load_tiny(*ops, {}, {.compute = DType::f16}).error().message, HasSubstr("f16"));
  ParallelContext alone;
  alone.mesh = *Mesh::create({.tensor = 2});
  EXPECT_THAT(load_tiny(*ops, alone, {}).error().message, HasSubstr("collectives"));
}

/// A model whose vocabulary is the first `rows` tokens of the tiny one's.
void write_smaller_vocabulary(const golden::TemporaryFolder& folder, std::int64_t rows) {
  auto object = nlohmann::json::parse(golden::file_bytes(tiny_folder() / "config.json"));
  object["vocab_size"] = rows;
  folder.write("config.json", object.dump());
  const auto good = Checkpoint::open(tiny_folder());
  ASSERT_TRUE(good.ok());
  auto tensors = golden::read_all(*good);
  for (const std::string name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    golden::RawTensor& table = tensors.at(name);
    table.bytes.resize(table.bytes.size() / static_cast<std::size_t>(table.shape[0]) *
                       static_cast<std::size_t>(rows));
    table.shape[0] = rows;
  }
  folder.write("model.safetensors", golden::safetensors_bytes(tensors));
}

Result<std::vector<float>> logits_of(golden::Runner& runner) {
  Sequence sequence{{5, 400, 37, 0, 311, 12, 254, 255, 256}};
  std::vector<float> logits;
  TROUPE_CHECK(runner.feed(sequence, 4, logits));
  return logits;
}

TEST(DecoderModel, spreads_a_vocabulary_that_no_tensor_size_divides) {
  REQUIRE_OK(const LoadedModel full, golden::load(tiny_folder(), DType::f32));
  REQUIRE_OK(const auto all, logits_of(*full.runner));
  constexpr std::size_t full_vocab = 512;
  for (const std::int64_t vocab : {509, 510, 411}) {
    const golden::TemporaryFolder folder;
    write_smaller_vocabulary(folder, vocab);
    for (const int ranks : {1, 2, 4}) {
      REQUIRE_OK(const auto found,
                 golden::run_ranks(folder.path(), DType::f32, {.shape = {.tensor = ranks}},
                                   [&](auto& runner, int) { return logits_of(runner); }));
      const auto width = static_cast<std::size_t>(vocab);
      for (const auto& logits : found) {
        ASSERT_EQ(logits.size() / width, all.size() / full_vocab);
        for (std::size_t row = 0; row * width < logits.size(); ++row) {
          ASSERT_EQ(
              std::memcmp(&logits[row * width], &all[row * full_vocab], width * sizeof(float)), 0)
              << "vocabulary " << vocab << ", " << ranks << " ranks, row " << row;
        }
      }
    }
  }
}

}  // namespace
}  // namespace troupe
