// What is encoded, Checkpoint reads back as the same numbers.
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "models/checkpoint/checkpoint.hpp"
#include "models/ops/fp8_rows.hpp"
#include "models/quantize/layer_tensors.hpp"
#include "models/quantize/quantized_matrix.hpp"
#include "tests/support/require.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

struct Case {
  QuantizationScheme scheme;
  DType scales;
  std::int64_t columns, group;
  std::string config;  // of a group
};

std::string config_of(const Case& chosen) {
  using enum QuantizationScheme;
  const bool is_float = chosen.scheme == fp8 || chosen.scheme == mxfp4 || chosen.scheme == nvfp4;
  const bool is_grouped = chosen.group < chosen.columns;
  const std::string strategy = has_tensor_scale(chosen.scheme) ? "tensor_group"
                               : is_grouped                    ? "group"
                                                               : "channel";
  return R"({"quantization_config": {"quant_method": "compressed-tensors", "format": ")" +
         chosen.config + R"(", "config_groups": {"group_0": {"targets": ["Linear"], "weights":
         {"num_bits": )" +
         (is_grouped ? "4" : "8") + R"(, "type": ")" + (is_float ? "float" : "int") +
         R"(", "strategy": ")" + strategy + R"(", "group_size": )" +
         (is_grouped ? std::to_string(chosen.group) : "null") + "}}}}}";
}

class RoundTrip : public testing::TestWithParam<Case> {};

TEST_P(RoundTrip, gives_back_the_numbers) {
  const Case& chosen = GetParam();
  constexpr std::int64_t rows = 19;
  std::mt19937 random(2);
  std::normal_distribution<float> noise;
  HostTensor matrix(DType::f32, {rows, chosen.columns});
  for (float& weight : matrix->span<float>()) weight = noise(random) * 0.02F;
  ThreadPool threads(2);
  const CodeGrid grid =
      CodeGrid(chosen.scheme, chosen.scales).with_range(largest_magnitude(matrix->span<float>()));
  const QuantizedMatrix made = round_to_nearest(matrix, grid, chosen.group, threads);

  const tests::TemporaryFolder folder;
  folder.write("config.json", config_of(chosen));
  const auto specs = encoded_specs("a.b.weight", matrix->shape(), grid, chosen.group);
  const auto bytes = encode(made);
  ASSERT_EQ(specs.size(), bytes.size());
  {
    REQUIRE_OK(ShardWriter writer, ShardWriter::create(folder.path() / "model.safetensors", specs));
    for (std::size_t i = 0; i < specs.size(); ++i) {
      EXPECT_EQ(specs[i].bytes, bytes[i].size());
      ASSERT_TRUE(writer.append(bytes[i]).ok());
    }
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "model.safetensors"));
    ASSERT_TRUE(writer.finish().ok());
  }
  REQUIRE_OK(const Checkpoint checkpoint, Checkpoint::open(folder.path()));
  REQUIRE_OK(const StoredTensor stored, checkpoint.stored_weight("a.b.weight", matrix->shape()));
  ASSERT_NE(stored.format, nullptr);
  std::vector<float> row(static_cast<std::size_t>(chosen.columns));
  double error = 0, whole = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    stored.format->decode(stored, i, 0, chosen.columns, row.data());
    for (std::int64_t j = 0; j < chosen.columns; ++j) {
      const float weight = matrix->as<float>()[i * chosen.columns + j];
      ASSERT_EQ(row[static_cast<std::size_t>(j)], made.number(i, j)) << i << " " << j;
      error += std::pow(weight - made.number(i, j), 2);
      whole += std::pow(weight, 2);
    }
  }
  EXPECT_LT(std::sqrt(error / whole), chosen.group < chosen.columns ? 0.2 : 0.04);
}

TEST(ShardWriter, leaves_no_file_without_all_bytes) {
  const tests::TemporaryFolder folder;
  const std::vector<TensorSpec> specs = {{"a", "U8", {4}, 4}};
  {
    REQUIRE_OK(ShardWriter writer, ShardWriter::create(folder.path() / "a.safetensors", specs));
    EXPECT_FALSE(writer.append(std::vector<std::byte>(5)).ok());
    EXPECT_FALSE(writer.finish().ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

INSTANTIATE_TEST_SUITE_P(
    Schemes, RoundTrip,
    testing::Values(Case{QuantizationScheme::fp8, DType::bf16, 40, 40, "float-quantized"},
                    Case{QuantizationScheme::int8, DType::bf16, 41, 41, "int-quantized"},
                    Case{QuantizationScheme::int8, DType::f32, 41, 41, "int-quantized"},
                    Case{QuantizationScheme::w4a16, DType::bf16, 96, 32, "pack-quantized"},
                    Case{QuantizationScheme::w4a16, DType::f16, 96, 16, "pack-quantized"},
                    Case{QuantizationScheme::mxfp4, DType::bf16, 96, 32, "mxfp4-pack-quantized"},
                    Case{QuantizationScheme::nvfp4, DType::bf16, 80, 16, "nvfp4-pack-quantized"},
                    Case{QuantizationScheme::nvfp4, DType::f16, 96, 16, "nvfp4-pack-quantized"}),
    [](const auto& info) {
      return std::string(to_string(info.param.scheme)) + "_" + std::to_string(info.index);
    });

}  // namespace
}  // namespace troupe
