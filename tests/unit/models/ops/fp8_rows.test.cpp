#include "models/ops/fp8_rows.hpp"

#include <cmath>
#include <limits>

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

TEST(Fp8Rows, of_zeros_have_a_scale_and_of_infinities_none) {
  EXPECT_EQ(fp8_row_scale(0.0F), 1.0F);
  EXPECT_EQ(fp8_row_scale(448.0F), 1.0F);
  EXPECT_TRUE(std::isfinite(1.0F / fp8_row_scale(1e-44F)));
  EXPECT_TRUE(std::isnan(fp8_row_scale(std::numeric_limits<float>::infinity())));
}

}  // namespace
}  // namespace troupe
