#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/families/family.hpp"
#include "models/model/model.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/support/require.hpp"

namespace troupe {
namespace {

using golden::RawTensor;
using golden::TemporaryFolder;
using testing::AllOf;
using testing::HasSubstr;

using Tensors = std::map<std::string, RawTensor>;

std::filesystem::path tiny_folder() { return golden::data_folder() / "qwen3moe-a"; }

/// Runs check_model on a golden checkpoint.
Result<void> check_golden(const char* model, const MeshShape& shape, int expert_parallel_size) {
  const auto folder = golden::data_folder() / model;
  TROUPE_TRY(const ModelConfig config, load_model_config(folder));
  TROUPE_TRY(const Checkpoint checkpoint, Checkpoint::open(folder));
  TROUPE_TRY(const Mesh mesh, Mesh::create(shape, expert_parallel_size));
  return check_model(config, checkpoint, mesh);
}

/// Runs check_model on the tiny checkpoint after changes to its config and weights.
Result<void> check_changed(const std::function<void(nlohmann::json&)>& change_config,
                           const std::function<void(Tensors&)>& change_weights,
                           const MeshShape& shape = {}, int expert_parallel_size = 1) {
  const TemporaryFolder folder;
  auto object = nlohmann::json::parse(golden::file_bytes(tiny_folder() / "config.json"));
  change_config(object);
  folder.write("config.json", object.dump());
  TROUPE_TRY(const Checkpoint good, Checkpoint::open(tiny_folder()));
  Tensors tensors = golden::read_all(good);
  change_weights(tensors);
  folder.write("model.safetensors", golden::safetensors_bytes(tensors));
  TROUPE_TRY(const ModelConfig config, load_model_config(folder.path()));
  TROUPE_TRY(const Checkpoint checkpoint, Checkpoint::open(folder.path()));
  TROUPE_TRY(const Mesh mesh, Mesh::create(shape, expert_parallel_size));
  return check_model(config, checkpoint, mesh);
}

void keep_config(nlohmann::json& /*config*/) {}
void keep_weights(Tensors& /*tensors*/) {}

TEST(CheckModel, accepts_a_whole_checkpoint_at_every_tensor_size_that_divides) {
  for (const int size : {1, 2, 4}) {
    const auto checked = check_changed(keep_config, keep_weights, {.tensor = size});
    EXPECT_TRUE(checked.ok()) << size << ": " << checked.error().message;
  }
}

TEST(CheckModel, names_a_missing_tensor_and_its_file) {
  const std::vector<std::string> names = {"lm_head.weight", "model.layers.1.mlp.up_proj.weight",
                                          "model.layers.2.mlp.experts.5.gate_proj.weight",
                                          "model.layers.0.self_attn.q_norm.weight"};
  for (const std::string& name : names) {
    const auto checked = check_changed(keep_config, [&](Tensors& all) { all.erase(name); });
    ASSERT_FALSE(checked.ok()) << name;
    EXPECT_EQ(checked.error().code, ErrorCode::not_found);
    EXPECT_THAT(checked.error().message,
                AllOf(HasSubstr("model.safetensors"), HasSubstr("missing tensor " + name)));
  }
}

TEST(CheckModel, names_expected_and_found_shape_where_the_config_is_of_another_model) {
  const auto checked =
      check_changed([](nlohmann::json& config) { config["hidden_size"] = 48; }, keep_weights);
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.error().code, ErrorCode::corrupt_data);
  EXPECT_THAT(checked.error().message,
              AllOf(HasSubstr("model.safetensors"), HasSubstr("model.embed_tokens.weight"),
                    HasSubstr("[512, 48]"), HasSubstr("[512, 64]")));
}

TEST(CheckModel, refuses_a_weight_of_integers) {
  const auto checked = check_changed(keep_config, [](Tensors& all) {
    RawTensor& norm = all.at("model.norm.weight");
    norm = {"I32", {64}, std::string(256, '\0')};
  });
  ASSERT_FALSE(checked.ok());
  EXPECT_THAT(checked.error().message,
              AllOf(HasSubstr("model.norm.weight"), HasSubstr("I32 [64]")));
}

TEST(CheckModel, says_what_does_not_divide_what) {
  for (const int size : {3, 8}) {
    const auto checked = check_changed(keep_config, keep_weights, {.tensor = size});
    ASSERT_FALSE(checked.ok()) << size;
    EXPECT_EQ(checked.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(checked.error().message, AllOf(HasSubstr("tensor size " + std::to_string(size)),
                                               HasSubstr("does not divide")));
  }
}

TEST(CheckModel, says_that_ranks_do_not_divide_the_experts) {
  const auto checked = check_changed(keep_config, keep_weights, {.data = 3}, 3);
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(checked.error().message, "expert_parallel_size 3 does not divide the experts 8");
}

TEST(CheckModel, refuses_expert_ranks_for_a_model_without_experts) {
  const auto checked = check_golden("llama-a", {.tensor = 2}, 2);
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.error().message, "expert_parallel_size 2: the model has no experts");
}

TEST(CheckModel, refuses_context_ranks_for_sparse_attention) {
  const auto checked = check_golden("deepseek32-a", {.context = 2}, 1);
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.error().code, ErrorCode::unsupported);
  EXPECT_THAT(checked.error().message, testing::HasSubstr("index_topk 24"));
}

// Experts of an odd inner size cannot be split, but can be distributed.
TEST(CheckModel, counts_the_ranks_that_split_an_expert_not_all_tensor_ranks) {
  const auto check = [](int expert_parallel_size) {
    return check_changed([](nlohmann::json& config) { config["moe_intermediate_size"] = 3; },
                         [](Tensors& all) {
                           for (auto& [name, tensor] : all) {
                             if (name.find(".experts.") == std::string::npos) continue;
                             const bool down = name.find("down_proj") != std::string::npos;
                             tensor.shape = {down ? 64 : 3, down ? 3 : 64};
                             tensor.bytes.resize(tensor.dtype == "F32" ? 768 : 384);
                           }
                         },
                         {.tensor = 4}, expert_parallel_size);
  };
  const auto dealt = check(4);
  EXPECT_TRUE(dealt.ok()) << dealt.error().message;
  const auto split = check(2);
  ASSERT_FALSE(split.ok());
  EXPECT_THAT(split.error().message,
              AllOf(HasSubstr("does not divide output features of"), HasSubstr("gate_proj"),
                    HasSubstr("(each expert is split by tensor size 4 / 2)")));
}

TEST(CheckModel, refuses_a_config_of_absurd_size_without_allocating_for_it) {
  const auto checked = check_changed(
      [](nlohmann::json& config) {
        config["vocab_size"] = 1 << 24;
        config["hidden_size"] = 1 << 20;
      },
      keep_weights);
  ASSERT_FALSE(checked.ok());
  EXPECT_THAT(checked.error().message, HasSubstr("[16777216, 1048576]"));
}

TEST(CheckModel, refuses_experts_that_are_spread_over_context_ranks) {
  const std::filesystem::path folder = golden::data_folder() / "qwen3moe-a";
  REQUIRE_OK(const ModelConfig config, load_model_config(folder));
  REQUIRE_OK(const Checkpoint checkpoint, Checkpoint::open(folder));
  const MeshShape shape{.context = 2, .tensor = 2};
  REQUIRE_OK(const Mesh within, Mesh::create(shape, 2));
  EXPECT_TRUE(check_model(config, checkpoint, within).ok());
  REQUIRE_OK(const Mesh over, Mesh::create(shape, 4));
  const auto checked = check_model(config, checkpoint, over);
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.error().code, ErrorCode::unsupported);
  EXPECT_THAT(checked.error().message, HasSubstr("context_parallel_size 2"));
}

}  // namespace
}  // namespace troupe
