#include "models/ops/stored_matrix.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::ElementsAre;

StoredPart part_of(const Tensor& view, Slice rows, Slice cols) {
  return {.matrix = {.view = view}, .rows = rows, .cols = cols};
}

StoredMatrix matrix_of(std::vector<StoredPart> parts, DType dtype) {
  StoredMatrix matrix{.columns = parts.front().cols.count, .dtype = dtype};
  for (const StoredPart& part : parts) matrix.rows += part.rows.count;
  matrix.parts = std::move(parts);
  return matrix;
}

std::array<float, 12> counted() {
  std::array<float, 12> values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) + 0.5F;
  return values;
}

TEST(StoredMatrix, copies_slices_and_converts) {
  auto values = counted();
  const Tensor view(values.data(), DType::f32, {3, 4});
  const HostTensor same = in_host_memory(matrix_of({part_of(view, {1, 2}, {2, 2})}, DType::f32));
  EXPECT_THAT(same->span<float>(), ElementsAre(6.5F, 7.5F, 10.5F, 11.5F));
  const HostTensor rounded =
      in_host_memory(matrix_of({part_of(view, {0, 1}, {0, 4})}, DType::bf16));
  EXPECT_EQ(to_float(rounded->as<BFloat16>()[3]), 3.5F);

  std::array<std::uint16_t, 2> halves{0x3C00, 0xC000};  // 1 and -2
  const Tensor half_view(halves.data(), DType::f16, {1, 2});
  const HostTensor widened =
      in_host_memory(matrix_of({part_of(half_view, {0, 1}, {0, 2})}, DType::f32));
  EXPECT_THAT(widened->span<float>(), ElementsAre(1.0F, -2.0F));
}

TEST(StoredMatrix, takes_every_other_column_as_rows) {
  auto values = counted();
  // [3 inputs, 4]: the columns of a gate and an up with two outputs each, in turn.
  const auto columns_of = [&](float* first, Slice rows, Slice cols, DType dtype) {
    StoredPart part = part_of(Tensor(first, DType::f32, {3, 4}), rows, cols);
    part.row_step = 2;
    return in_host_memory(matrix_of({part}, dtype));
  };
  EXPECT_THAT(columns_of(&values[0], {0, 2}, {0, 3}, DType::f32)->span<float>(),
              ElementsAre(0.5F, 4.5F, 8.5F, 2.5F, 6.5F, 10.5F));
  EXPECT_THAT(columns_of(&values[1], {1, 1}, {1, 2}, DType::f32)->span<float>(),
              ElementsAre(7.5F, 11.5F));
  EXPECT_EQ(to_float(columns_of(&values[1], {0, 2}, {0, 3}, DType::bf16)->as<BFloat16>()[2]), 9.5F);
}

TEST(StoredMatrix, puts_parts_of_several_types_below_each_other_and_zeros_where_there_is_none) {
  auto values = counted();
  std::array<BFloat16, 4> narrow{to_bfloat16(1), to_bfloat16(2), to_bfloat16(3), to_bfloat16(4)};
  const Tensor view(values.data(), DType::f32, {3, 4});
  const Tensor narrow_view(narrow.data(), DType::bf16, {2, 2});
  StoredMatrix matrix =
      matrix_of({part_of(view, {2, 1}, {1, 2}), part_of(narrow_view, {0, 2}, {0, 2})}, DType::f32);
  EXPECT_EQ(matrix.filled_rows(), 3);
  matrix.rows = 4;
  EXPECT_THAT(in_host_memory(matrix)->span<float>(), ElementsAre(9.5F, 10.5F, 1, 2, 3, 4, 0, 0));
}

TEST(StoredMatrix, decodes_slices_across_the_blocks_of_a_format) {
  const HostTensor codes(DType::u8, {130, 260}), scales(DType::f32, {2, 3});
  std::memset(codes->data(), 0x38, codes->bytes());   // 1
  codes->as<std::uint8_t>()[129 * 260 + 257] = 0xC8;  // -4
  for (int i = 0; i < 6; ++i) scales->as<float>()[i] = static_cast<float>(i + 1);
  const StoredPart part{
      .matrix = {.view = codes,
                 .format = &weight_format(WeightCoding::fp8),
                 .scheme = {.coding = WeightCoding::fp8, .group_rows = 128, .group_columns = 128},
                 .groups = {2, 3},
                 .companion = scales},
      .rows = {127, 3},
      .cols = {127, 131}};
  const HostTensor decoded = in_host_memory(matrix_of({part}, DType::f32));
  const auto at = [&](int row, int column) { return decoded->as<float>()[row * 131 + column]; };
  EXPECT_EQ(at(0, 0), 1.0F);
  EXPECT_EQ(at(0, 1), 2.0F);
  EXPECT_EQ(at(0, 129), 3.0F);
  EXPECT_EQ(at(1, 0), 4.0F);
  EXPECT_EQ(at(2, 128), 5.0F);
  EXPECT_EQ(at(2, 130), -24.0F);
  const HostTensor narrow = in_host_memory(matrix_of({part}, DType::bf16));
  EXPECT_EQ(to_float(narrow->as<BFloat16>()[2 * 131 + 130]), -24.0F);
}

TEST(WeightFormat, of_e4m3_has_subnormals_and_no_infinity) {
  EXPECT_EQ(e4m3_to_float(0x00), 0.0F);
  EXPECT_EQ(e4m3_to_float(0x01), 0x1p-9F);
  EXPECT_EQ(e4m3_to_float(0x07), 0x1.cp-7F);
  EXPECT_EQ(e4m3_to_float(0x08), 0x1p-6F);
  EXPECT_EQ(e4m3_to_float(0xB8), -1.0F);
  EXPECT_EQ(e4m3_to_float(0x7E), 448.0F);
  EXPECT_TRUE(std::isnan(e4m3_to_float(0x7F)) && std::isnan(e4m3_to_float(0xFF)));
}

TEST(StoredMatrix, copies_some_rows_of_a_part) {
  auto values = counted();
  const Tensor view(values.data(), DType::f32, {3, 4});
  std::array<float, 4> out{};
  copy_rows(part_of(view, {1, 2}, {0, 4}), 1, 1, DType::f32, out.data());
  EXPECT_THAT(out, ElementsAre(8.5F, 9.5F, 10.5F, 11.5F));
}

TEST(StoredMatrix, reads_weights_at_odd_addresses) {
  alignas(8) std::array<char, 9> memory{};
  const std::array<float, 2> values{1.25F, -3.0F};
  std::memcpy(memory.data() + 1, values.data(), sizeof values);
  const Tensor view(memory.data() + 1, DType::f32, {1, 2});
  const HostTensor out = in_host_memory(matrix_of({part_of(view, {0, 1}, {0, 2})}, DType::bf16));
  EXPECT_EQ(to_float(out->as<BFloat16>()[0]), 1.25F);
  EXPECT_EQ(to_float(out->as<BFloat16>()[1]), -3.0F);
}

TEST(StoredMatrix, rounds_to_nearest_even_and_keeps_what_is_no_number) {
  std::array<float, 4> values{1.0F + 0x1p-8F, 1.0F + 0x1p-8F + 0x1p-20F,
                              std::numeric_limits<float>::quiet_NaN(),
                              -std::numeric_limits<float>::infinity()};
  const Tensor view(values.data(), DType::f32, {1, 4});
  const HostTensor out = in_host_memory(matrix_of({part_of(view, {0, 1}, {0, 4})}, DType::bf16));
  EXPECT_EQ(to_float(out->as<BFloat16>()[0]), 1.0F);
  EXPECT_EQ(to_float(out->as<BFloat16>()[1]), 1.0F + 0x1p-7F);
  EXPECT_NE(to_float(out->as<BFloat16>()[2]), to_float(out->as<BFloat16>()[2]));
  EXPECT_EQ(to_float(out->as<BFloat16>()[3]), -std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace troupe
