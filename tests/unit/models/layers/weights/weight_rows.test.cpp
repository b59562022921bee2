#include "models/layers/weights/weight_rows.hpp"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::ElementsAre;

HostTensor counted(std::int64_t rows, std::int64_t columns) {
  HostTensor matrix(DType::f32, {rows, columns});
  std::iota(matrix->span<float>().begin(), matrix->span<float>().end(), 0.0F);
  return matrix;
}

TEST(WeightRows, are_taken_in_the_order_asked_for) {
  const std::vector<std::int64_t> rows{2, 0};
  const HostTensor taken = take_rows(counted(3, 2), rows);
  EXPECT_EQ(taken->shape(), Shape({2, 2}));
  EXPECT_THAT(taken->span<float>(), ElementsAre(4, 5, 0, 1));
}

TEST(WeightRows, of_two_matrices_are_stacked_in_f32_if_only_one_is_bf16) {
  const HostTensor upper(DType::f32, {1, 2}), lower(DType::bf16, {2, 2});
  upper->as<float>()[0] = 1.001F;
  for (int i = 0; i < 4; ++i) lower->as<BFloat16>()[i] = to_bfloat16(static_cast<float>(i));
  EXPECT_EQ(stack_rows(lower, lower)->dtype(), DType::bf16);
  const HostTensor stacked = stack_rows(upper, lower);
  ASSERT_EQ(stacked->shape(), (Shape{3, 2}));
  const auto elements = stacked->span<float>();
  EXPECT_EQ(std::vector(elements.begin(), elements.end()),
            (std::vector<float>{1.001F, 0, 0, 1, 2, 3}));
}

TEST(WeightRows, become_columns_when_transposed) {
  const HostTensor turned = transposed(counted(2, 3));
  EXPECT_EQ(turned->shape(), Shape({3, 2}));
  EXPECT_THAT(turned->span<float>(), ElementsAre(0, 3, 1, 4, 2, 5));
}

TEST(WeightRows, of_pairs_to_rotate_are_put_in_halves) {
  EXPECT_THAT(rows_to_rotate(10, 6, 6, true), ElementsAre(10, 12, 14, 11, 13, 15));
  EXPECT_THAT(rows_to_rotate(10, 4, 4, false), ElementsAre(10, 11, 12, 13));
  EXPECT_THAT(rows_to_rotate(10, 4, 0, true), ElementsAre(10, 11, 12, 13));
}

TEST(WeightRows, that_do_not_rotate_are_dealt_to_the_ends_of_both_halves) {
  EXPECT_THAT(rows_to_rotate(10, 8, 4, false), ElementsAre(10, 11, 14, 15, 12, 13, 16, 17));
  EXPECT_THAT(rows_to_rotate(10, 8, 4, true), ElementsAre(10, 12, 14, 15, 11, 13, 16, 17));
}

}  // namespace
}  // namespace troupe
