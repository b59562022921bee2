#include "models/ops/fp8_rows.hpp"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "models/ops/weight_format.hpp"

namespace troupe {
namespace {

TEST(Fp8Rows, every_code_is_nearest_to_its_own_number) {
  for (int code = 0; code < 256; ++code) {
    const float value = e4m3_to_float(static_cast<std::uint8_t>(code));
    if (std::isnan(value)) continue;
    EXPECT_EQ(float_to_e4m3(value), code) << value;
  }
}

TEST(Fp8Rows, numbers_between_two_codes_become_the_nearer_one_or_the_even) {
  for (int code = 0; code < 0x7E; ++code) {
    const float low = e4m3_to_float(static_cast<std::uint8_t>(code));
    const float high = e4m3_to_float(static_cast<std::uint8_t>(code + 1));
    const float middle = (low + high) / 2;
    const int even = code % 2 == 0 ? code : code + 1;
    EXPECT_EQ(float_to_e4m3(middle), even) << middle;
    EXPECT_EQ(float_to_e4m3(-middle), 0x80 | even) << middle;
    EXPECT_EQ(float_to_e4m3(std::nextafter(middle, 0.0F)), code) << middle;
    EXPECT_EQ(float_to_e4m3(std::nextafter(middle, 500.0F)), code + 1) << middle;
  }
}

TEST(Fp8Rows, numbers_out_of_range_become_the_largest_and_nan_stays) {
  EXPECT_EQ(float_to_e4m3(1e9F), 0x7E);
  EXPECT_EQ(float_to_e4m3(-std::numeric_limits<float>::infinity()), 0xFE);
  EXPECT_TRUE(std::isnan(e4m3_to_float(float_to_e4m3(std::nanf("")))));
}

TEST(Fp8Rows, rows_are_rounded_by_at_most_a_16th_each_by_its_own_scale) {
  std::mt19937 engine(3);
  std::normal_distribution<float> normal;
  HostTensor weight(DType::f32, {3, 40});
  for (int r = 0; r < 3; ++r) {
    for (int i = 0; i < 40; ++i) {
      weight->as<float>()[r * 40 + i] = normal(engine) * (r == 0 ? 1e-4F : r == 1 ? 0.0F : 300.0F);
    }
  }
  const HostTensor rounded = rounded_to_fp8(weight);
  for (int i = 0; i < 120; ++i) {
    const float exact = weight->as<float>()[i], found = to_float(rounded->as<BFloat16>()[i]);
    // Half a unit of three bits of fraction, and the rounding to bf16; small ones are coarser.
    const float least = (i < 40 ? 3e-4F : 900.0F) / 448.0F * 0x1p-9F;
    EXPECT_LE(std::fabs(found - exact), std::fabs(exact) * 0.0665F + least) << i;
  }
}

TEST(Fp8Rows, of_zeros_have_a_scale_and_of_infinities_none) {
  EXPECT_EQ(fp8_row_scale(0.0F), 1.0F);
  EXPECT_EQ(fp8_row_scale(448.0F), 1.0F);
  EXPECT_TRUE(std::isfinite(1.0F / fp8_row_scale(1e-44F)));
  EXPECT_TRUE(std::isnan(fp8_row_scale(std::numeric_limits<float>::infinity())));
}

}  // namespace
}  // namespace troupe
