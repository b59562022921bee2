#include "models/checkpoint/dummy_weights.hpp"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/checkpoint/checkpoint.hpp"
#include "tests/support/require.hpp"

namespace troupe {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr std::string_view query = "model.layers.0.self_attn.q_proj.weight";

TEST(DummyWeights, depend_on_name_and_position_alone) {
  REQUIRE_OK(const auto one, DummyWeights::create(DType::f32));
  REQUIRE_OK(const auto other, DummyWeights::create(DType::f32));
  REQUIRE_OK(const Tensor a, one.tensor(query, {64, 32}));
  REQUIRE_OK(const Tensor b, other.tensor(query, {32, 64}));
  REQUIRE_OK(const Tensor c, one.tensor("model.layers.1.self_attn.q_proj.weight", {64, 32}));
  EXPECT_THAT(a.span<float>(), testing::ElementsAreArray(b.span<float>()));
  int equal = 0;
  for (int i = 0; i < 2048; ++i) equal += a.as<float>()[i] == c.as<float>()[i] ? 1 : 0;
  EXPECT_LT(equal, 100) << "of 2048 values of another layer";
}

TEST(DummyWeights, are_the_same_numbers_in_bf16_and_f32) {
  REQUIRE_OK(const auto wide, DummyWeights::create(DType::f32));
  REQUIRE_OK(const auto narrow, DummyWeights::create(DType::bf16));
  REQUIRE_OK(const Tensor exact, wide.tensor("z", {4096}));
  REQUIRE_OK(const Tensor rounded, narrow.tensor("z", {4096}));
  // The pattern has as many bytes in either type, so offsets differ, but not the content.
  double squares[2] = {};
  for (int i = 0; i < 4096; ++i) {
    EXPECT_EQ(to_float(to_bfloat16(exact.as<float>()[i])), exact.as<float>()[i]) << i;
    squares[0] += std::pow(exact.as<float>()[i], 2);
    squares[1] += std::pow(to_float(rounded.as<BFloat16>()[i]), 2);
  }
  for (const double sum : squares) EXPECT_NEAR(std::sqrt(sum / 4096), 0.0231, 0.001);
}

TEST(DummyWeights, of_norms_are_one) {
  REQUIRE_OK(const auto weights, DummyWeights::create(DType::f32));
  REQUIRE_OK(const Tensor norm, weights.tensor("model.layers.3.input_layernorm.weight", {5000}));
  EXPECT_THAT(norm.span<float>(), Each(1.0F));
}

TEST(DummyWeights, of_attention_outputs_are_small) {
  REQUIRE_OK(const auto weights, DummyWeights::create(DType::f32));
  REQUIRE_OK(const Tensor matrix,
             weights.tensor("model.layers.3.self_attn.o_proj.weight", {64, 64}));
  double squares = 0;
  for (const float value : matrix.span<float>()) squares += std::pow(value, 2);
  EXPECT_NEAR(std::sqrt(squares / 4096), 0.0231 / 128, 0.00001);
}

TEST(DummyWeights, reach_the_last_element_of_tensors_of_gigabytes) {
  REQUIRE_OK(const auto weights, DummyWeights::create(DType::bf16));
  for (const char* name : {"a", "b", "c", "d"}) {
    REQUIRE_OK(const Tensor large, weights.tensor(name, {std::int64_t{1} << 18, 1 << 15}));
    EXPECT_LE(std::abs(to_float(large.as<BFloat16>()[large.elements() - 1])), 0.0402F);
  }
  const auto larger = weights.tensor("e", {std::int64_t{1} << 18, (1 << 15) + 1});
  ASSERT_FALSE(larger.ok());
  EXPECT_EQ(larger.error().code, ErrorCode::unsupported);
  EXPECT_THAT(larger.error().message, HasSubstr("tensor e [262144, 32769]"));
}

TEST(Checkpoint, without_files_has_a_weight_for_every_name) {
  REQUIRE_OK(const auto checkpoint, Checkpoint::dummy(DType::bf16));
  REQUIRE_OK(const Tensor weight, checkpoint.weight(query, {64, 32}));
  EXPECT_EQ(weight.shape(), Shape({64, 32}));
  EXPECT_EQ(weight.dtype(), DType::bf16);
  EXPECT_FALSE(checkpoint.contains(query));
  EXPECT_THAT(checkpoint.names(), testing::IsEmpty());
  EXPECT_EQ(checkpoint.tensor(query).error().code, ErrorCode::not_found);
}

TEST(Checkpoint, without_files_has_codes_where_a_config_has_mxfp4_of_all_experts) {
  REQUIRE_OK(const auto everything, ModulePattern::parse("Linear"));
  QuantizationConfig quantization;
  quantization.groups.push_back(
      {.targets = {everything},
       .scheme = {.coding = WeightCoding::mxfp4_experts, .group_columns = 32}});
  REQUIRE_OK(const auto checkpoint, Checkpoint::dummy(DType::bf16, quantization));
  REQUIRE_OK(const StoredTensor matrix, checkpoint.stored_weight(query, {64, 32}));
  EXPECT_EQ(matrix.format, nullptr);
  REQUIRE_OK(const StoredTensor experts,
             checkpoint.stored_weight("model.layers.0.mlp.experts.down_proj", {4, 64, 96}));
  ASSERT_NE(experts.format, nullptr);
  EXPECT_EQ(experts.view.shape(), Shape({4, 96, 2, 16}));
  EXPECT_EQ(experts.companion.shape(), Shape({4, 96, 2}));
  StoredTensor rows = experts;  // as a matrix of all experts' rows
  rows.view = experts.view.reshaped({4 * 96, 32});
  rows.companion = experts.companion.reshaped({4 * 96, 2});
  rows.groups = {4 * 96, 2};
  double squares = 0.0, sum = 0.0;
  std::vector<float> row(64);
  for (std::int64_t r = 0; r < 4 * 96; ++r) {
    experts.format->decode(rows, r, 0, 64, row.data());
    for (const float number : row) squares += std::pow(number, 2), sum += number;
  }
  EXPECT_NEAR(std::sqrt(squares / (4 * 96 * 64)), 0.0229, 0.001);
  EXPECT_NEAR(sum / (4 * 96 * 64), 0.0, 0.001);
}

}  // namespace
}  // namespace troupe
