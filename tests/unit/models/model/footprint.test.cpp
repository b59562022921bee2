#include "models/model/footprint.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/families/family.hpp"
#include "models/model/model.hpp"
#include "models/ops/coded_panels.hpp"
#include "models/ops/cpu/cpu_ops.hpp"
#include "parallel/collectives/shm/shm_collectives.hpp"
#include "runtime/memory/shared_memory.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/support/require.hpp"
#include "tests/support/source_path.hpp"

namespace troupe {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::filesystem::path demo_folder() { return test::source_path("configs/demo/fable-moe"); }
std::filesystem::path tiny_folder() { return golden::data_folder() / "qwen3moe-a"; }

/// `rank`'s seat in a group whose other seats stay empty; none for a group of one. Loading a model
/// exchanges nothing.
Result<std::unique_ptr<Collectives>> seat_of(const std::vector<int>& group, int rank) {
  if (group.size() == 1) return std::unique_ptr<Collectives>();
  const auto size = static_cast<int>(group.size());
  const auto index = static_cast<int>(std::ranges::find(group, rank) - group.begin());
  TROUPE_TRY(SharedMemory region, SharedMemory::create(shm_collectives_bytes(size)));
  TROUPE_TRY(auto seat, ShmCollectives::attach(std::move(region), index, size));
  return std::unique_ptr<Collectives>(std::move(seat));
}

/// Compares the loaded model of a rank with its footprint.
void expect_footprint(const std::filesystem::path& folder, const Mesh& mesh, int rank, DType dtype,
                      WeightEncoding encoding = WeightEncoding::plain,
                      std::optional<bool> quantize_head = {}) {
  SCOPED_TRACE(fmt::format("{}, {}, E {}, {}", folder.filename().string(), mesh.describe(rank),
                           mesh.expert_parallel_size(), to_string(dtype)));
  REQUIRE_OK(const auto config, load_model_config(folder));
  REQUIRE_OK(const auto checkpoint, Checkpoint::open(folder));
  REQUIRE_OK(const auto ops, make_cpu_ops({.dtype = dtype}));
  REQUIRE_OK(const auto tensor, seat_of(mesh.group(MeshDimension::tensor, rank), rank));
  REQUIRE_OK(const auto context, seat_of(mesh.group(MeshDimension::context, rank), rank));
  REQUIRE_OK(const auto pipeline, seat_of(mesh.group(MeshDimension::pipeline, rank), rank));
  REQUIRE_OK(const auto experts, seat_of(mesh.dispatch_group(rank), rank));
  REQUIRE_OK(const auto dense, seat_of(mesh.dense_group(rank), rank));
  const ParallelContext parallel{.mesh = mesh,
                                 .rank = rank,
                                 .tensor = tensor.get(),
                                 .context = context.get(),
                                 .pipeline = pipeline.get(),
                                 .experts = experts.get(),
                                 .dense = dense.get()};
  const ModelLimits limits{.max_batch_tokens = 8,
                           .max_head_rows = 8,
                           .encoding = encoding,
                           .quantize_head = quantize_head,
                           .compute = dtype,
                           .kv_dtype = dtype};
  REQUIRE_OK(const auto model, load_model(config, checkpoint, *ops, parallel, limits));
  REQUIRE_OK(const auto found, rank_footprint(config, checkpoint, mesh, rank,
                                              {.compute = dtype,
                                               .encoding = encoding,
                                               .quantize_head = quantize_head,
                                               .kv_dtype = dtype,
                                               .panel_rows = cpu_panel_rows}));
  // Headers of GPTQ do not say whether all zero points are the middle, which then are not held.
  if (folder.filename() == "gptq-int4") {
    EXPECT_GT(found.weight_bytes, model->weight_bytes());
  } else {
    EXPECT_EQ(found.weight_bytes, model->weight_bytes());
  }
  EXPECT_EQ(found.kv_bytes_per_block, model->kv_bytes_per_block());
}

void expect_footprints(const std::filesystem::path& folder, MeshShape shape,
                       int expert_parallel_size, DType dtype = DType::f32,
                       bool data_parallel_attention = false) {
  REQUIRE_OK(const Mesh mesh, Mesh::create(shape, expert_parallel_size, data_parallel_attention));
  for (int rank = 0; rank < mesh.world_size(); ++rank) expect_footprint(folder, mesh, rank, dtype);
}

TEST(Footprint, is_what_a_loaded_model_says) {
  std::vector<std::filesystem::path> folders = {demo_folder(), tiny_folder()};
  for (const std::string& name : golden::tiny_model_names()) {
    folders.push_back(golden::data_folder() / name);
  }
  for (const auto& folder : folders) {
    for (const DType dtype : {DType::f32, DType::bf16}) expect_footprints(folder, {}, 1, dtype);
  }
}

TEST(Footprint, of_codes_is_what_a_loaded_model_and_its_ranks_say) {
  for (const auto& entry :
       std::filesystem::directory_iterator(golden::data_folder() / "quantized")) {
    expect_footprints(entry.path(), {}, 1);
    expect_footprints(entry.path(), {.tensor = 2}, 1);
  }
  using enum WeightEncoding;
  REQUIRE_OK(const Mesh two, Mesh::create({.tensor = 2}, 1, false));
  for (const WeightEncoding encoding : {fp8, int8, int4}) {
    for (const std::string name : {"llama-a", "deepseek3-a", "glm4-a", "qwen3moe-a"}) {
      if (!std::filesystem::exists(golden::data_folder() / name)) continue;
      expect_footprint(golden::data_folder() / name, two, 1, DType::f32, encoding);
    }
    REQUIRE_OK(const Mesh one, Mesh::create({}, 1, false));
    expect_footprint(golden::data_folder() / "quantized" / "ct-mxfp4", one, 0, DType::f32,
                     encoding);
  }
}

TEST(Footprint, of_a_head_in_8_bits_or_not_is_what_a_loaded_model_says) {
  using enum WeightEncoding;
  REQUIRE_OK(const Mesh two, Mesh::create({.tensor = 2}));
  for (const std::string name : {"llama-a", "phi3-a"}) {  // the latter's is tied
    expect_footprint(golden::data_folder() / name, two, 1, DType::f32, fp8, true);
    expect_footprint(golden::data_folder() / name, two, 1, DType::f32, int8, false);
  }
}

TEST(Footprint, on_a_gpu_has_a_head_in_8_bits_unless_it_is_tied) {
  const auto saved_bytes = [](const std::string& name, int ranks) {
    const std::filesystem::path folder = golden::data_folder() / name;
    const auto config = load_model_config(folder);
    const auto checkpoint = Checkpoint::open(folder);
    const auto mesh = Mesh::create({.tensor = ranks});
    FootprintOptions options{.compute = DType::bf16, .encoding = WeightEncoding::fp8};
    options.on_gpu = options.gpu_codes = options.shares_tables = true;
    const auto plain = rank_footprint(*config, *checkpoint, *mesh, 0, options);
    options.quantize_head = true;
    const auto coded = rank_footprint(*config, *checkpoint, *mesh, 0, options);
    return plain->weight_bytes - coded->weight_bytes;
  };
  EXPECT_EQ(saved_bytes("llama-a", 1), std::size_t{512} * (64 - sizeof(float)));
  EXPECT_EQ(saved_bytes("llama-a", 2), std::size_t{256} * (64 - sizeof(float)));
  EXPECT_EQ(saved_bytes("phi3-a", 1), 0U);
}

TEST(Footprint, is_what_each_tensor_rank_says) {
  expect_footprints(tiny_folder(), {.tensor = 2}, 1);
  expect_footprints(tiny_folder(), {.tensor = 4}, 1, DType::bf16);
  for (const std::string& name : golden::tiny_model_names()) {
    expect_footprints(golden::data_folder() / name, {.tensor = 2}, 1);
  }
}

TEST(Footprint, is_what_each_rank_of_replicas_that_share_dense_layers_says) {
  for (const std::string name : {"deepseek3-a", "llama-a", "gemma3-a", "qwen2moe-a"}) {
    expect_footprints(golden::data_folder() / name, {.data = 2}, 1, DType::f32, true);
    expect_footprints(golden::data_folder() / name, {.data = 2, .pipeline = 2, .tensor = 2}, 1,
                      DType::bf16, true);
  }
  expect_footprints(golden::data_folder() / "deepseek3-a", {.data = 4}, 4, DType::f32, true);
}

TEST(Footprint, of_replicas_that_share_dense_layers_has_a_share_of_all_but_attention) {
  // One layer of nearly nothing but an MLP of 3 x 64 x 4096, embedding and head of 4096 x 64.
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.hidden_size = 64;
  config.layers = 1;
  config.heads = 4;
  config.kv_heads = 4;
  config.head_dim = 16;
  config.intermediate_size = 4096;
  config.vocab_size = 4096;
  config.max_position_embeddings = 128;
  REQUIRE_OK(const Checkpoint checkpoint, Checkpoint::dummy(DType::bf16));
  const auto bytes_of = [&](const Result<Mesh>& mesh) {
    const auto rank = rank_footprint(config, checkpoint, *mesh, 0, {.compute = DType::bf16});
    EXPECT_TRUE(rank.ok()) << rank.error().message;
    return static_cast<std::int64_t>(rank->weight_bytes);
  };
  const std::int64_t alone = bytes_of(Mesh::create({.data = 4}));
  const std::int64_t shared = bytes_of(Mesh::create({.data = 4}, 1, true));
  EXPECT_EQ(alone - shared, std::int64_t{5} * 64 * 4096 * 2 * 3 / 4);
}

TEST(Footprint, of_gemma_3_has_the_kv_of_its_layers_and_no_more) {
  // The attention of Gemma 3 12B: 48 layers with 8 KV heads of 256, every sixth without a window.
  ModelConfig config;
  config.architecture = "Gemma3ForCausalLM";
  config.hidden_size = 64;
  config.layers = 48;
  config.heads = 16;
  config.kv_heads = 8;
  config.head_dim = 256;
  config.intermediate_size = 64;
  config.vocab_size = 256;
  config.max_position_embeddings = 131072;
  config.tie_word_embeddings = true;
  for (int layer = 0; layer < 48; ++layer) config.windows.push_back(layer % 6 == 5 ? 0 : 1024);
  REQUIRE_OK(const Checkpoint checkpoint, Checkpoint::dummy(DType::bf16));
  REQUIRE_OK(const Mesh mesh, Mesh::create({}));
  REQUIRE_OK(const RankFootprint rank,
             rank_footprint(config, checkpoint, mesh, 0,
                            {.compute = DType::bf16, .kv_dtype = DType::bf16}));
  // A token has a sixteenth of a block in each group.
  const std::size_t bytes = rank.kv_bytes_per_block * cache_groups(config).size() / 16;
  EXPECT_EQ(bytes, std::size_t{48} * 2 * 8 * 256 * 2);  // 393,216; two groups would take 655,360
}

TEST(Footprint, has_a_table_of_each_rope_that_the_layers_read) {
  const auto rope_bytes = [](const char* name, std::int64_t max_positions) {
    const std::filesystem::path folder = golden::data_folder() / name;
    const auto config = load_model_config(folder);
    const auto checkpoint = Checkpoint::open(folder);
    const auto mesh = Mesh::create({});
    const auto found =
        rank_footprint(*config, *checkpoint, *mesh, 0, {.max_positions = max_positions});
    EXPECT_TRUE(found.ok()) << found.error().message;
    return found->rope_bytes;
  };
  EXPECT_EQ(rope_bytes("qwen3moe-a", 0), std::size_t{2048} * 32 * 4) << "the model's own length";
  EXPECT_EQ(rope_bytes("qwen3moe-a", 100), std::size_t{100} * 32 * 4);
  EXPECT_EQ(rope_bytes("gemma3-a", 100), std::size_t{2} * 100 * 16 * 4) << "windows have their own";
  EXPECT_EQ(rope_bytes("deepseek3-a", 100), std::size_t{100} * 16 * 4) << "of the rotated key";
}

TEST(Footprint, has_memory_for_the_panels_of_layers_that_may_fall_back_experts_included) {
  const std::filesystem::path folder = golden::data_folder() / "qwen3moe-a";
  const auto config = load_model_config(folder);
  const auto checkpoint = Checkpoint::open(folder);
  const auto mesh = Mesh::create({});
  FootprintOptions options{.compute = DType::bf16, .encoding = WeightEncoding::fp8};
  options.on_gpu = options.gpu_codes = true;
  const auto rounding = rank_footprint(*config, *checkpoint, *mesh, 0, options);
  options.widens_codes = true;
  const auto widened = rank_footprint(*config, *checkpoint, *mesh, 0, options);
  // Gates and ups have 64 of 128 columns, down matrices 48; in two layers of eight experts.
  const std::size_t of_experts = 2 * 8 * (96 * 64 + 64 * 80);
  // Query, key and value have 64 columns, the output 128, the dense MLP's matrices 64 and 144.
  const std::size_t of_others = 3 * 256 * 64 + 288 * 64 + 64 * 112;
  EXPECT_EQ(widened->weight_bytes - rounding->weight_bytes, of_experts + of_others);
  EXPECT_EQ(rounding->decoded_bytes, 0U);
  EXPECT_EQ(widened->decoded_bytes, decoded_codes_bytes);
  options.encoding = WeightEncoding::w8a8;  // experts are bf16
  const auto widened_bytes = rank_footprint(*config, *checkpoint, *mesh, 0, options);
  options.widens_codes = false;
  const auto rounding_bytes = rank_footprint(*config, *checkpoint, *mesh, 0, options);
  EXPECT_EQ(widened_bytes->weight_bytes - rounding_bytes->weight_bytes, of_others);
}

TEST(Footprint, has_memory_in_which_codes_become_bf16_where_a_gpu_needs_it) {
  const auto decoded_bytes = [](const std::string& name, const FootprintOptions& options) {
    const std::filesystem::path folder = golden::data_folder() / name;
    const auto config = load_model_config(folder);
    const auto checkpoint = Checkpoint::open(folder);
    const auto mesh = Mesh::create({});
    const auto found = rank_footprint(*config, *checkpoint, *mesh, 0, options);
    EXPECT_TRUE(found.ok()) << found.error().message;
    return found->decoded_bytes;
  };
  FootprintOptions options{.compute = DType::bf16, .encoding = WeightEncoding::fp8};
  options.gpu_codes = options.widens_codes = true;
  EXPECT_EQ(decoded_bytes("llama-a", options), 0U) << "CPUs rearrange where codes are";
  options.on_gpu = true;
  EXPECT_EQ(decoded_bytes("llama-a", options), decoded_codes_bytes);
  options.widens_codes = false;
  EXPECT_EQ(decoded_bytes("llama-a", options), 0U);
  options.encoding = WeightEncoding::plain;
  EXPECT_EQ(decoded_bytes("llama-a", options), 0U);
  options.encoding = WeightEncoding::int8;
  EXPECT_EQ(decoded_bytes("llama-a", options), decoded_codes_bytes) << "of prompts' products";
}

TEST(Footprint, is_what_each_stage_says) {
  expect_footprints(tiny_folder(), {.pipeline = 2, .context = 1, .tensor = 2}, 1);
  expect_footprints(tiny_folder(), {.pipeline = 3, .context = 1, .tensor = 1}, 1, DType::bf16);
  expect_footprints(tiny_folder(), {.pipeline = 1, .context = 2, .tensor = 1}, 1);
  expect_footprints(tiny_folder(), {.pipeline = 2, .context = 3, .tensor = 2}, 1);
  expect_footprints(demo_folder(), {.pipeline = 4, .context = 1, .tensor = 1}, 1);
  for (const char* name : {"llama-a", "deepseek3-a", "gemma3-a"}) {
    expect_footprints(golden::data_folder() / name, {.pipeline = 2, .tensor = 1}, 1);
  }
}

TEST(Footprint, is_what_each_rank_with_dealt_experts_says) {
  expect_footprints(tiny_folder(), {.tensor = 2}, 2);
  expect_footprints(tiny_folder(), {.tensor = 4}, 2, DType::bf16);
  expect_footprints(golden::data_folder() / "deepseek3-a", {.tensor = 4}, 2);
  expect_footprints(golden::data_folder() / "gptoss-a", {.tensor = 4}, 2);
  expect_footprints(tiny_folder(), {.data = 2, .tensor = 2}, 2);
  expect_footprints(tiny_folder(), {.data = 2, .pipeline = 1, .context = 1, .tensor = 2}, 4);
  expect_footprints(demo_folder(), {.data = 2, .pipeline = 2, .context = 1, .tensor = 1}, 2);
}

/// The footprints of fable-moe's ranks on a mesh.
std::vector<RankFootprint> demo_footprints(MeshShape shape, int expert_parallel_size) {
  const auto config = load_model_config(demo_folder());
  const auto checkpoint = Checkpoint::open(demo_folder());
  const auto mesh = Mesh::create(shape, expert_parallel_size);
  std::vector<RankFootprint> all;
  for (int rank = 0; rank < mesh->world_size(); ++rank) {
    const auto one = rank_footprint(*config, *checkpoint, *mesh, rank, {});
    EXPECT_TRUE(one.ok()) << one.error().message;
    all.push_back(*one);
  }
  return all;
}

TEST(Footprint, of_two_stages_is_that_of_one_cut_in_two) {
  const auto whole = demo_footprints({}, 1);
  const auto stages = demo_footprints({.pipeline = 2}, 1);
  EXPECT_EQ(stages[0].layers, (Slice{0, 2}));
  EXPECT_EQ(stages[1].layers, (Slice{2, 2}));
  EXPECT_EQ(stages[0].weight_bytes + stages[1].weight_bytes, whole[0].weight_bytes);
  EXPECT_EQ(stages[0].kv_bytes_per_block * 2, whole[0].kv_bytes_per_block);
  // The final norm, in f32, is added to the embedding's copy used as head.
  EXPECT_EQ(stages[1].weight_bytes, stages[0].weight_bytes + std::size_t{256} * 4);
}

TEST(Footprint, of_experts_is_the_same_whether_they_are_dealt_or_split) {
  const auto split = demo_footprints({.tensor = 2}, 1);
  const auto dealt = demo_footprints({.tensor = 2}, 2);
  EXPECT_EQ(split[1].experts, (Slice{0, 16}));
  EXPECT_EQ(split[1].expert_part, 1);
  EXPECT_EQ(split[1].expert_parts, 2);
  EXPECT_EQ(dealt[1].experts, (Slice{8, 8}));
  EXPECT_EQ(dealt[1].expert_parts, 1);
  EXPECT_EQ(split[1].weight_bytes, dealt[1].weight_bytes);
}

TEST(Footprint, of_experts_shrinks_where_replicas_share_them) {
  const auto alone = demo_footprints({.data = 2}, 1);
  const auto shared = demo_footprints({.data = 2}, 2);
  EXPECT_EQ(alone[1].experts, (Slice{0, 16}));
  EXPECT_EQ(shared[0].experts, (Slice{0, 8}));
  EXPECT_EQ(shared[1].experts, (Slice{8, 8}));
  // 4 layers of 8 experts of three matrices less, in bf16.
  EXPECT_EQ(alone[0].weight_bytes - shared[0].weight_bytes, std::size_t{4} * 8 * 3 * 256 * 128 * 2);
}

TEST(Footprint, refuses_what_does_not_divide) {
  REQUIRE_OK(const auto config, load_model_config(demo_folder()));
  REQUIRE_OK(const auto checkpoint, Checkpoint::open(demo_folder()));
  const auto refusal = [&](MeshShape shape, int expert_parallel_size) {
    const auto mesh = Mesh::create(shape, expert_parallel_size);
    const auto found = rank_footprint(config, checkpoint, *mesh, 0, {});
    return found.ok() ? "accepted" : found.error().message;
  };
  EXPECT_EQ(refusal({.pipeline = 5}, 1),
            "pipeline_parallel_size 5 does not fit the model's 4 layers");
  EXPECT_EQ(refusal({.data = 3}, 3), "expert_parallel_size 3 does not divide the experts 16");
  EXPECT_THAT(refusal({.tensor = 3}, 1),
              AllOf(HasSubstr("tensor size 3"), HasSubstr("does not divide heads of")));
}

}  // namespace
}  // namespace troupe
