#include "models/checkpoint/checkpoint.hpp"

#include <array>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/checkpoint_folder.hpp"
#include "tests/support/require.hpp"

namespace troupe {
namespace {

using golden::safetensors_bytes;
using golden::TemporaryFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Checkpoint, opens_shards_by_their_index) {
  const TemporaryFolder folder;
  folder.write("one.safetensors", safetensors_bytes({{"a", {"U8", {1}, "1"}}}));
  folder.write("two.safetensors", safetensors_bytes({{"b", {"U8", {2}, "22"}}}));
  folder.write("model.safetensors.index.json",
               R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})");
  REQUIRE_OK(const auto checkpoint, Checkpoint::open(folder.path()));
  EXPECT_THAT(checkpoint.names(), ElementsAre("a", "b"));
  REQUIRE_OK(const Tensor b, checkpoint.tensor("b"));
  EXPECT_EQ(b.shape(), Shape({2}));
  const auto missing = checkpoint.tensor("c");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message,
              AllOf(HasSubstr("model.safetensors.index.json"), HasSubstr("missing tensor c")));
}

TEST(Checkpoint, refuses_an_index_that_lies) {
  const std::vector<std::pair<std::string, std::string>> indices = {
      {R"({"weight_map": {"a": "gone.safetensors"}})", "gone.safetensors: no such file"},
      {R"({"weight_map": {"z": "one.safetensors"}})", "tensor z is listed in one.safetensors"},
      {R"({"weight_map": {"a": "../one.safetensors"}})", "tensor a: expected the name of a file"},
      {R"({"weight_map": {"a": 3}})", "tensor a: expected the name of a file"},
      {R"({"metadata": {}})", "missing key weight_map"},
      {"{\n\"weight_map\": }", "model.safetensors.index.json:2:"},
  };
  for (const auto& [index, part] : indices) {
    const TemporaryFolder folder;
    folder.write("one.safetensors", safetensors_bytes({{"a", {"U8", {1}, "1"}}}));
    folder.write("model.safetensors.index.json", index);
    const auto checkpoint = Checkpoint::open(folder.path());
    ASSERT_FALSE(checkpoint.ok()) << index;
    EXPECT_THAT(checkpoint.error().message, HasSubstr(part));
  }
}

TEST(Checkpoint, says_which_files_it_looked_for) {
  const TemporaryFolder folder;
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_EQ(checkpoint.error().code, ErrorCode::not_found);
  EXPECT_THAT(checkpoint.error().message,
              AllOf(HasSubstr(folder.path().string()), HasSubstr("model.safetensors")));
}

TEST(Checkpoint, names_expected_and_found_shape_of_a_weight) {
  const TemporaryFolder folder;
  folder.write("model.safetensors",
               safetensors_bytes({{"a", {"BF16", {1, 2}, "1234"}}, {"i", {"I32", {1}, "1234"}}}));
  REQUIRE_OK(const auto checkpoint, Checkpoint::open(folder.path()));
  EXPECT_TRUE(checkpoint.weight("a", {1, 2}).ok());
  const auto other = checkpoint.weight("a", {2, 2});
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(other.error().message, AllOf(HasSubstr("model.safetensors"), HasSubstr("tensor a"),
                                           HasSubstr("[2, 2]"), HasSubstr("BF16 [1, 2]")));
  EXPECT_THAT(checkpoint.weight("i", {1}).error().message, HasSubstr("found I32 [1]"));
}

TEST(Checkpoint, finds_the_companion_of_a_weight_that_is_encoded) {
  const std::string codes(6, '8'), scale(4, '\0');
  const TemporaryFolder folder;
  folder.write("config.json", R"({"quantization_config": {"quant_method": "fp8",
      "weight_block_size": [128, 128], "modules_to_not_convert": ["d"]}})");
  folder.write("model.safetensors", safetensors_bytes({{"a", {"F8_E4M3", {2, 3}, codes}},
                                                       {"a_scale_inv", {"F32", {1, 1}, scale}},
                                                       {"b", {"F8_E4M3", {2, 3}, codes}},
                                                       {"c", {"F8_E4M3", {2, 3}, codes}},
                                                       {"c_scale_inv", {"F32", {2}, scale + scale}},
                                                       {"d", {"F8_E4M3", {2, 3}, codes}}}));
  REQUIRE_OK(const auto checkpoint, Checkpoint::open(folder.path()));
  REQUIRE_OK(const StoredTensor a, checkpoint.stored_weight("a", {2, 3}));
  ASSERT_NE(a.format, nullptr);
  EXPECT_EQ(a.dtype(), DType::bf16);
  EXPECT_EQ(a.companion.shape(), (Shape{1, 1}));
  EXPECT_THAT(checkpoint.stored_weight("a", {3, 2}).error().message, HasSubstr("found [2, 3]"));
  EXPECT_THAT(checkpoint.stored_weight("b", {2, 3}).error().message,
              HasSubstr("missing tensor b_scale"));
  EXPECT_THAT(checkpoint.stored_weight("c", {2, 3}).error().message,
              AllOf(HasSubstr("tensor c_scale_inv"), HasSubstr("[1, 1]")));
  EXPECT_THAT(checkpoint.stored_weight("d", {2, 3}).error().message,
              HasSubstr("says that it is not quantised"));
  EXPECT_EQ(checkpoint.weight("a", {2, 3}).error().code, ErrorCode::unsupported);
}

// As compressed-tensors and ModelOpt write it: one divides by the scale of all, one multiplies.
TEST(Checkpoint, finds_both_scales_of_nvfp4) {
  const std::string codes(16, '8'), scales(2, '8'), four("\0\0\x80\x40", 4);
  const TemporaryFolder packed;
  packed.write("config.json", R"({"quantization_config": {"quant_method": "compressed-tensors",
      "format": "nvfp4-pack-quantized", "config_groups": {"group_0": {"targets": ["Linear"],
      "weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}}}}})");
  packed.write("model.safetensors",
               safetensors_bytes({{"a_packed", {"U8", {1, 16}, codes}},
                                  {"a_scale", {"F8_E4M3", {1, 2}, scales}},
                                  {"a_global_scale", {"F32", {1}, four}},
                                  {"b_packed", {"U8", {1, 16}, codes}},
                                  {"b_scale", {"F8_E4M3", {1, 2}, scales}},
                                  {"c_packed", {"U8", {1, 16}, codes}},
                                  {"c_scale", {"F8_E4M3", {1, 2}, scales}},
                                  {"c_global_scale", {"F32", {1}, std::string(4, '\0')}}}));
  REQUIRE_OK(const auto checkpoint, Checkpoint::open(packed.path()));
  REQUIRE_OK(const StoredTensor a, checkpoint.stored_weight("a", {1, 32}));
  EXPECT_EQ(a.companion.dtype(), DType::f8_e4m3);
  EXPECT_EQ(a.tensor_scale, 0.25F);
  EXPECT_TRUE(checkpoint.check_scales("a", a).ok());
  EXPECT_THAT(checkpoint.stored_weight("b", {1, 32}).error().message,
              HasSubstr("missing tensor b_global_scale"));
  REQUIRE_OK(const StoredTensor c, checkpoint.stored_weight("c", {1, 32}));
  EXPECT_THAT(checkpoint.check_scales("c", c).error().message, HasSubstr("scale number 0 is inf"));

  const TemporaryFolder modelopt;
  modelopt.write("hf_quant_config.json",
                 R"({"quantization": {"quant_algo": "NVFP4", "group_size": 16}})");
  modelopt.write("config.json", "{}");
  modelopt.write("model.safetensors", safetensors_bytes({{"a", {"U8", {1, 16}, codes}},
                                                         {"a_scale", {"F8_E4M3", {1, 2}, scales}},
                                                         {"a_scale_2", {"F32", {}, four}}}));
  REQUIRE_OK(const auto other, Checkpoint::open(modelopt.path()));
  REQUIRE_OK(const StoredTensor same, other.stored_weight("a", {1, 32}));
  ASSERT_NE(same.format, nullptr);
  EXPECT_EQ(same.tensor_scale, 4.0F);
}

}  // namespace
}  // namespace troupe
