#include "models/quantize/code_grid.hpp"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "models/ops/fp8_rows.hpp"
#include "models/ops/weight_format.hpp"

namespace troupe {
namespace {

/// The code whose number is nearest, by trying all; of two, the even one.
std::uint8_t nearest_e4m3(float number) {
  std::uint8_t best = 0;
  float least = std::numeric_limits<float>::infinity();
  for (int code = 0; code < 256; ++code) {
    const float value = e4m3_to_float(static_cast<std::uint8_t>(code));
    if (std::isnan(value) || std::signbit(value) != std::signbit(number)) continue;
    const float distance = std::abs(value - number);
    if (distance < least || (distance == least && code % 2 == 0)) {
      least = distance;
      best = static_cast<std::uint8_t>(code);
    }
  }
  return best;
}

TEST(CodeGrid, rounds_to_the_nearest_e4m3_with_ties_to_even) {
  for (int code = 0; code < 256; ++code) {
    const float value = e4m3_to_float(static_cast<std::uint8_t>(code));
    if (!std::isnan(value)) {
      EXPECT_EQ(float_to_e4m3(value), code);
    }
  }
  std::mt19937 random(1);
  std::uniform_real_distribution<float> exponent(-11.0F, 9.5F), sign(-1.0F, 1.0F);
  for (int i = 0; i < 5000; ++i) {
    const float number = std::copysign(std::exp2(exponent(random)), sign(random));
    EXPECT_EQ(float_to_e4m3(number), nearest_e4m3(number)) << number;
  }
  EXPECT_EQ(float_to_e4m3(17.0F), float_to_e4m3(16.0F)) << "a tie";
  EXPECT_EQ(float_to_e4m3(19.0F), float_to_e4m3(20.0F)) << "a tie";
  EXPECT_EQ(e4m3_to_float(float_to_e4m3(-1e9F)), -448.0F);
}

TEST(CodeGrid, rounds_halves_as_they_are_read_back) {
  for (std::uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const float number = half_to_float(static_cast<std::uint16_t>(bits));
    ASSERT_EQ(float_to_half(number), bits);
    ASSERT_EQ(float_to_half(-number), bits | 0x8000U);
  }
  EXPECT_EQ(half_to_float(float_to_half(1e9F)), 65504.0F);
}

TEST(CodeGrid, has_the_number_of_each_code_of_each_scheme) {
  const CodeGrid int4(QuantizationScheme::w4a16, DType::bf16);
  for (int code = 0; code < 16; ++code) {
    const float number = int4.number_of(static_cast<std::uint8_t>(code), 0.5F);
    EXPECT_EQ(number, 0.5F * static_cast<float>(code - 8));
    EXPECT_EQ(int4.code_of(number, 0.5F), code);
  }
  const CodeGrid mxfp4(QuantizationScheme::mxfp4, DType::bf16);
  const std::vector<float> magnitudes = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (std::size_t i = 1; i < magnitudes.size(); ++i) {
    EXPECT_EQ(mxfp4.nearest(magnitudes[i] * 4, 4.0F), magnitudes[i] * 4);
    EXPECT_EQ(mxfp4.nearest(-magnitudes[i] * 4, 4.0F), -magnitudes[i] * 4);
  }
  // Ties go to even codes: those of 0, 1, 2 and 4.
  EXPECT_EQ(mxfp4.nearest(0.25F, 1.0F), 0.0F);
  EXPECT_EQ(mxfp4.nearest(0.75F, 1.0F), 1.0F);
  EXPECT_EQ(mxfp4.nearest(2.5F, 1.0F), 2.0F);
  EXPECT_EQ(mxfp4.nearest(5.0F, 1.0F), 4.0F);
  EXPECT_EQ(mxfp4.nearest(100.0F, 1.0F), 6.0F);
}

TEST(CodeGrid, chooses_scales_as_they_are_stored) {
  const std::vector<float> weights = {0.1F, -3.3F, 2.0F};
  for (const auto scheme :
       {QuantizationScheme::fp8, QuantizationScheme::int8, QuantizationScheme::w4a16}) {
    const float scale = CodeGrid(scheme, DType::bf16).scale_of(weights);
    EXPECT_EQ(scale, to_float(to_bfloat16(scale)));
  }
  // 3.3 is in [2, 4): 2^(1 - 2).
  EXPECT_EQ(CodeGrid(QuantizationScheme::mxfp4, DType::bf16).scale_of(weights), 0.5F);
  const std::vector<float> zeros(8);
  const CodeGrid int8(QuantizationScheme::int8, DType::f16);
  EXPECT_GT(int8.scale_of(zeros), 0.0F);
  EXPECT_EQ(int8.nearest(0.0F, int8.scale_of(zeros)), 0.0F);
}

TEST(CodeGrid, clips_an_outlier_where_that_is_closer) {
  std::vector<float> weights(127, 0.4F);
  weights.push_back(5.0F);
  const auto error = [&](ScaleChoice choice) {
    const CodeGrid grid(QuantizationScheme::w4a16, DType::f32, choice);
    const float scale = grid.scale_of(weights);
    double sum = 0;
    for (const float weight : weights) sum += std::pow(weight - grid.nearest(weight, scale), 2);
    return sum;
  };
  EXPECT_LT(error(ScaleChoice::mse), 0.8 * error(ScaleChoice::absmax));
}

}  // namespace
}  // namespace troupe
