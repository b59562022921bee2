#include "models/config/quantization.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/config/fields.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/support/require.hpp"

namespace troupe {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Result<QuantizationConfig> read(const json& object) {
  return read_quantization(Fields(object, "config.json"));
}

/// A quantization_config of compressed-tensors with one group.
json compressed(const std::string& format, const json& weights) {
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}},
          {"ignore", {"lm_head", "re:.*mlp\\.gate$"}}};
}

const WeightScheme& only_scheme(const QuantizationConfig& config) {
  return config.groups.at(0).scheme;
}

TEST(Quantization, of_compressed_tensors_is_read_by_strategy) {
  REQUIRE_OK(const auto fp8,
             read(compressed("float-quantized",
                             {{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}})));
  EXPECT_EQ(only_scheme(fp8),
            (WeightScheme{.coding = WeightCoding::fp8, .group_rows = 0, .group_columns = 0}));
  REQUIRE_OK(const auto block,
             read(compressed("float-quantized", {{"num_bits", 8},
                                                 {"type", "float"},
                                                 {"strategy", "block"},
                                                 {"block_structure", {64, 128}}})));
  EXPECT_EQ(only_scheme(block),
            (WeightScheme{.coding = WeightCoding::fp8, .group_rows = 64, .group_columns = 128}));
  REQUIRE_OK(const auto int4, read(compressed("pack-quantized", {{"num_bits", 4},
                                                                 {"strategy", "group"},
                                                                 {"group_size", 32},
                                                                 {"symmetric", false},
                                                                 {"actorder", "group"}})));
  EXPECT_EQ(only_scheme(int4), (WeightScheme{.coding = WeightCoding::packed_int4,
                                             .group_columns = 32,
                                             .has_zero_points = true,
                                             .is_ordered = true}));
}

TEST(Quantization, excludes_modules_by_name_expression_and_wildcard) {
  REQUIRE_OK(const auto config,
             read(compressed("int-quantized", {{"num_bits", 8}, {"strategy", "channel"}})));
  EXPECT_EQ(config.scheme_of("lm_head"), nullptr);
  EXPECT_EQ(config.scheme_of("model.layers.0.mlp.gate"), nullptr);
  EXPECT_NE(config.scheme_of("model.layers.0.mlp.gate_proj"), nullptr);
  const auto is_about = [](std::string_view pattern, std::string_view module) {
    return ModulePattern::parse(pattern)->is_about(module);
  };
  EXPECT_TRUE(is_about("model.layers.*.self_attn", "model.layers.10.self_attn.q_proj"));
  EXPECT_FALSE(is_about("model.layers.*.self_attn", "model.layers.1.self_attention"));
  EXPECT_TRUE(is_about("*router*", "model.layers.0.mlp.router"));
  EXPECT_TRUE(is_about("mlp.gate", "model.layers.1.mlp.gate"));
  EXPECT_FALSE(is_about("layers.1", "model.layers.10.mlp"));
  EXPECT_TRUE(is_about("re:.*layers\\.0\\.", "model.layers.0.mlp"));
  EXPECT_FALSE(is_about("re:layers", "model.layers.0.mlp"));
  EXPECT_TRUE(is_about("re:(?!.*gate).*mlp", "model.layers.0.mlp.up"));
  EXPECT_FALSE(is_about("re:(?!.*gate).*mlp", "model.layers.0.mlp.gate"));
  EXPECT_FALSE(is_about("re:(a*)*b", std::string(5000, 'a'))) << "steps are bounded";
}

TEST(Quantization, of_other_methods_is_read) {
  REQUIRE_OK(
      const auto gptq,
      read({{"quant_method", "gptq"},
            {"bits", 4},
            {"group_size", -1},
            {"desc_act", true},
            {"dynamic", {{"-:.*down_proj", json::object()}, {"+:.*up_proj", {{"bits", 8}}}}}}));
  EXPECT_EQ(gptq.scheme_of("model.layers.0.mlp.down_proj"), nullptr);
  EXPECT_EQ(gptq.scheme_of("model.layers.0.mlp.up_proj")->coding, WeightCoding::gptq_int8);
  EXPECT_EQ(*gptq.scheme_of("model.layers.0.mlp.gate_proj"),
            (WeightScheme{.coding = WeightCoding::gptq_int4,
                          .group_columns = 0,
                          .has_zero_points = true,
                          .zeros_less_one = true,
                          .is_ordered = true}));
  REQUIRE_OK(const auto v2, read({{"quant_method", "gptq"},
                                  {"bits", 8},
                                  {"group_size", 128},
                                  {"checkpoint_format", "gptq_v2"}}));
  EXPECT_FALSE(only_scheme(v2).zeros_less_one);
  REQUIRE_OK(
      const auto awq,
      read({{"quant_method", "awq"}, {"w_bit", 4}, {"q_group_size", 64}, {"version", "GEMM"}}));
  EXPECT_EQ(only_scheme(awq).group_columns, 64);
  REQUIRE_OK(const auto channel,
             read({{"quant_method", "modelopt"}, {"quant_algo", "FP8_PER_CHANNEL_PER_TOKEN"}}));
  EXPECT_EQ(only_scheme(channel), (WeightScheme{.coding = WeightCoding::fp8}));
}

TEST(Quantization, of_nvfp4_has_groups_of_16_columns_under_both_names) {
  REQUIRE_OK(
      const auto packed,
      read(compressed(
          "nvfp4-pack-quantized",
          {{"num_bits", 4}, {"type", "float"}, {"strategy", "tensor_group"}, {"group_size", 16}})));
  EXPECT_EQ(only_scheme(packed),
            (WeightScheme{.coding = WeightCoding::nvfp4_packed, .group_columns = 16}));
  REQUIRE_OK(const auto modelopt, read({{"quant_method", "modelopt"},
                                        {"quant_algo", "NVFP4"},
                                        {"group_size", 16},
                                        {"exclude_modules", {"lm_head"}}}));
  EXPECT_EQ(only_scheme(modelopt),
            (WeightScheme{.coding = WeightCoding::nvfp4, .group_columns = 16}));
  EXPECT_TRUE(modelopt.has_activation_scheme);
}

TEST(Quantization, is_refused_with_the_key_and_what_is_supported) {
  const auto message = [](const json& object) {
    const auto config = read(object);
    EXPECT_FALSE(config.ok()) << object;
    return config.ok() ? std::string() : config.error().message;
  };
  const json int4 = {{"num_bits", 4}, {"strategy", "group"}, {"group_size", 32}};
  json sparse = compressed("pack-quantized", int4);
  sparse["sparsity_config"] = {{"format", "sparse-24-bitmask"}};
  EXPECT_THAT(message(sparse), HasSubstr("sparsity_config"));
  json turned = compressed("pack-quantized", int4);
  turned["transform_config"] = {{"config_groups", {{"a", 1}}}};
  EXPECT_THAT(message(turned), HasSubstr("transform_config"));
  EXPECT_THAT(message(compressed("nvfp4-pack-quantized", {{"num_bits", 4}, {"type", "float"}})),
              HasSubstr("group_size 0 is not supported by this version (16 for NVFP4)"));
  EXPECT_THAT(message(compressed("pack-quantized", {{"num_bits", 4}, {"strategy", "group"}})),
              HasSubstr("missing key group_size"));
  json broken = compressed("pack-quantized", int4);
  broken["ignore"] = {"re:("};
  EXPECT_THAT(message(broken), HasSubstr("not an expression"));
  EXPECT_THAT(message({{"quant_method", "bitsandbytes"}}), HasSubstr("compressed-tensors"));
  EXPECT_THAT(message({{"quant_method", "gptq"}, {"bits", 3}, {"group_size", 128}}),
              HasSubstr("bits 3 is not supported"));
  EXPECT_THAT(
      message({{"quant_method", "awq"}, {"bits", 4}, {"group_size", 128}, {"version", "gemv"}}),
      HasSubstr("version gemv"));
  EXPECT_THAT(message({{"quant_method", "modelopt"}, {"quant_algo", "NVFP4_AWQ"}}),
              HasSubstr("quant_algo NVFP4_AWQ"));
  EXPECT_THAT(message({{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}, {"group_size", 32}}),
              HasSubstr("group_size 32 is not supported"));
}

TEST(Quantization, is_found_in_a_file_beside_the_config) {
  const tests::TemporaryFolder folder;
  folder.write("config.json", "{}");
  REQUIRE_OK(const auto none, load_quantization(folder.path()));
  EXPECT_TRUE(none.groups.empty());
  folder.write("hf_quant_config.json",
               R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8",
                   "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}})");
  REQUIRE_OK(const auto config, load_quantization(folder.path()));
  EXPECT_EQ(config.method, "modelopt");
  EXPECT_TRUE(config.has_kv_scheme);
  EXPECT_EQ(config.scheme_of("lm_head"), nullptr);
  EXPECT_EQ(config.kv_codes, DType::f8_e4m3);
  EXPECT_THAT(config.describe(), HasSubstr("kv_cache.dtype fp8_e4m3"));
}

}  // namespace
}  // namespace troupe
