#include "models/ops/weight_format.hpp"

#include <array>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/ops/stored_matrix.hpp"

namespace troupe {
namespace {

using testing::ElementsAre;

template <class T>
Tensor view_of(std::vector<T>& values, DType dtype, Shape shape) {
  return {values.data(), dtype, shape};
}

StoredTensor stored(WeightScheme scheme, const Shape& matrix, const Tensor& codes,
                    const Tensor& scales) {
  return {.view = codes,
          .format = &weight_format(scheme.coding),
          .scheme = scheme,
          .groups = groups_of(scheme, matrix),
          .companion = scales};
}

std::vector<float> row_of(const StoredTensor& matrix, std::int64_t row, std::int64_t first,
                          std::int64_t count) {
  std::vector<float> out(static_cast<std::size_t>(count));
  matrix.format->decode(matrix, row, first, count, out.data());
  return out;
}

TEST(WeightFormat, has_a_row_for_each_coding) {
  for (int i = 0; i <= static_cast<int>(WeightCoding::nvfp4); ++i) {
    const auto coding = static_cast<WeightCoding>(i);
    EXPECT_EQ(weight_format(coding).coding, coding);
  }
}

// Five columns in groups of two: the last group is short.
TEST(WeightFormat, decodes_a_slice_that_begins_inside_a_group_and_ends_in_a_short_one) {
  std::vector<std::uint8_t> codes = {1, 2, 3, 4, 5, 0xFF, 0xFE, 0xFD, 0xFC, 0xFB};
  std::vector<float> scales = {1, 10, 100, 2, 20, 200};
  const WeightScheme scheme{.coding = WeightCoding::int8, .group_columns = 2};
  const auto matrix = stored(scheme, {2, 5}, view_of(codes, DType::u8, {2, 5}),
                             view_of(scales, DType::f32, {2, 3}));
  EXPECT_THAT(row_of(matrix, 0, 1, 4), ElementsAre(2, 30, 40, 500));
  EXPECT_THAT(row_of(matrix, 1, 3, 2), ElementsAre(-80, -1000));
}

TEST(WeightFormat, takes_columns_in_the_order_of_their_groups) {
  std::vector<std::uint32_t> codes = {0xFEDCBA98};  // 0 to 7, stored with 8 added
  std::vector<float> scales = {1, 16};
  std::vector<std::int32_t> order = {1, 0, 1, 0, 0, 1, 0, 1};
  const WeightScheme scheme{
      .coding = WeightCoding::packed_int4, .group_columns = 4, .is_ordered = true};
  auto matrix = stored(scheme, {1, 8}, view_of(codes, DType::i32, {1, 1}),
                       view_of(scales, DType::f32, {1, 2}));
  matrix.group_index = view_of(order, DType::i32, {8});
  EXPECT_THAT(row_of(matrix, 0, 0, 8), ElementsAre(0, 1, 32, 3, 4, 80, 6, 112));
}

TEST(WeightFormat, of_gptq_has_zero_points_less_one_or_not) {
  // One column of a matrix of 8 rows would be a word of the transposed one; here 8 columns, 1 row.
  std::vector<std::uint32_t> codes = {0x76543210}, zeros = {0x00000001};
  std::vector<float> scales = {0.5F};
  WeightScheme scheme{.coding = WeightCoding::gptq_int4, .has_zero_points = true};
  auto matrix = stored(scheme, {1, 8}, view_of(codes, DType::i32, {1, 1}),
                       view_of(scales, DType::f32, {1, 1}));
  matrix.zero_points = view_of(zeros, DType::i32, {1, 1});
  EXPECT_THAT(row_of(matrix, 0, 0, 4), ElementsAre(-0.5F, 0, 0.5F, 1));
  matrix.scheme.zeros_less_one = true;
  EXPECT_THAT(row_of(matrix, 0, 0, 4), ElementsAre(-1, -0.5F, 0, 0.5F));
}

TEST(WeightFormat, of_awq_has_even_rows_first) {
  // The places of rows 0 to 7 are 0, 4, 1, 5, 2, 6, 3, 7.
  std::vector<std::uint32_t> codes = {0x75316420}, zeros = {0};
  std::vector<float> scales = {1, 1, 1, 1, 1, 1, 1, 1};
  const WeightScheme scheme{.coding = WeightCoding::awq_int4, .has_zero_points = true};
  auto matrix = stored(scheme, {8, 1}, view_of(codes, DType::i32, {1, 1}),
                       view_of(scales, DType::f32, {1, 8}));
  matrix.zero_points = view_of(zeros, DType::i32, {1, 1});
  for (std::int64_t row = 0; row < 8; ++row) {
    EXPECT_THAT(row_of(matrix, row, 0, 1), ElementsAre(static_cast<float>(row)));
  }
}

TEST(WeightFormat, of_mxfp4_has_the_low_nibble_first_and_powers_of_two_as_scales) {
  std::vector<std::uint8_t> codes(16, 0), scales = {128};
  codes[0] = 0x7A;  // -1, then 6
  const WeightScheme scheme{.coding = WeightCoding::mxfp4_packed, .group_columns = 32};
  const auto matrix = stored(scheme, {1, 32}, view_of(codes, DType::u8, {1, 16}),
                             view_of(scales, DType::u8, {1, 1}));
  EXPECT_THAT(row_of(matrix, 0, 0, 3), ElementsAre(-2, 12, 0));
}

TEST(WeightFormat, of_nvfp4_has_scales_of_e4m3_that_are_times_one_of_all) {
  std::vector<std::uint8_t> codes(16, 0), scales = {0x3C, 0x7E};  // 1.5, 448
  codes[0] = 0x7A;                                                // -1, then 6
  codes[8] = 0x61;                                                // 0.5, then 4
  for (const WeightCoding coding : {WeightCoding::nvfp4_packed, WeightCoding::nvfp4}) {
    const WeightScheme scheme{.coding = coding, .group_columns = 16};
    auto matrix = stored(scheme, {1, 32}, view_of(codes, DType::u8, {1, 16}),
                         view_of(scales, DType::f8_e4m3, {1, 2}));
    matrix.tensor_scale = 0.25F;
    EXPECT_EQ(matrix.dtype(), DType::bf16);
    EXPECT_THAT(row_of(matrix, 0, 0, 3), ElementsAre(-0.375F, 2.25F, 0));
    EXPECT_THAT(row_of(matrix, 0, 15, 3), ElementsAre(0, 56, 448));
  }
}

TEST(WeightFormat, rounds_to_the_numbers_of_the_scales_dtype) {
  std::vector<std::uint8_t> codes = {3};
  std::vector<std::uint16_t> half = {0x2E66};  // 0.1 in f16
  const WeightScheme scheme{.coding = WeightCoding::int8};
  const auto matrix =
      stored(scheme, {1, 1}, view_of(codes, DType::u8, {1, 1}), view_of(half, DType::f16, {1, 1}));
  EXPECT_EQ(matrix.dtype(), DType::f32);
  EXPECT_THAT(row_of(matrix, 0, 0, 1), ElementsAre(half_to_float(0x34CC)));  // a tie, to even
}

}  // namespace
}  // namespace troupe
