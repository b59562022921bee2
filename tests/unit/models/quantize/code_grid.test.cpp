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

TEST(CodeGrid, of_nvfp4_has_scales_of_e4m3_over_a_divisor_of_the_whole_matrix) {
  const float absmax = 0.7F;
  const CodeGrid grid = CodeGrid(QuantizationScheme::nvfp4, DType::bf16).with_range(absmax);
  EXPECT_EQ(grid.scale_dtype(), DType::f8_e4m3);
  EXPECT_EQ(grid.tensor_divisor(), 448.0F * 6.0F / absmax);
  const float unit = 1.0F / grid.tensor_divisor();
  std::mt19937 random(3);
  std::uniform_real_distribution<float> exponent(-16.0F, 0.0F), part(-1.0F, 1.0F);
  for (int i = 0; i < 2000; ++i) {
    const float largest = i == 0 ? absmax : absmax * std::exp2(exponent(random));
    std::vector<float> weights(16);
    for (float& weight : weights) weight = part(random) * largest;
    weights[static_cast<std::size_t>(i % 16)] = largest;
    const float scale = grid.scale_of(weights);
    const float stored = e4m3_to_float(nearest_e4m3(std::max(largest / 6.0F / unit, 0x1p-9F)));
    ASSERT_EQ(scale, stored * unit) << largest;
    if (i == 0) {
      EXPECT_EQ(stored, 448.0F);
    }
    for (const float weight : weights) {
      // Half of the distance of the codes around it; a scale that was rounded down clips.
      const float code = std::abs(weight) / scale;
      const float half_step = code <= 2.0F ? 0.25F : code <= 4.0F ? 0.5F : 1.0F;
      const float found = grid.nearest(weight, scale);
      const float bf16 = std::abs(found) * 0x1p-8F;  // which numbers are rounded to
      ASSERT_LE(std::abs(weight - found), half_step * scale * 1.0001F + bf16) << weight;
    }
  }
  EXPECT_EQ(grid.scale_of(std::vector<float>(16)), 0x1p-9F * unit);
  // Numbers are rounded once, to bf16, whatever the matrix was stored as.
  const CodeGrid of_half = CodeGrid(QuantizationScheme::nvfp4, DType::f16).with_range(absmax);
  EXPECT_EQ(of_half.number_of(5, 0.1F), to_float(to_bfloat16(3.0F * 0.1F)));
  const CodeGrid of_zeros = CodeGrid(QuantizationScheme::nvfp4, DType::bf16).with_range(0.0F);
  EXPECT_EQ(of_zeros.tensor_divisor(), 1.0F);
  EXPECT_EQ(CodeGrid(QuantizationScheme::mxfp4, DType::bf16).with_range(3.0F).tensor_divisor(),
            1.0F);
}

TEST(CodeGrid, of_nvfp4_makes_the_largest_a_four_where_that_is_closer) {
  // With the largest as 4, 3 is a code, too; with 6 it would be 4.5, which is none.
  const std::vector<float> weights = {4.0F, 3.0F, 4.0F, 3.0F};
  for (const auto choice : {ScaleChoice::absmax, ScaleChoice::mse}) {
    const CodeGrid grid =
        CodeGrid(QuantizationScheme::nvfp4, DType::bf16, choice).with_range(40.0F);
    const float found = grid.nearest(3.0F, grid.scale_of(weights));
    EXPECT_EQ(std::abs(found - 3.0F) < 0.2F, choice == ScaleChoice::mse) << found;
  }
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
