#include "models/ops/coded_panels.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/random_codes.hpp"

namespace troupe {
namespace {

template <class T>
T at(const std::byte* from, std::int64_t i) {
  T value;
  std::memcpy(&value, from + i * static_cast<std::int64_t>(sizeof value), sizeof value);
  return value;
}

float number_at(const std::byte* from, DType dtype, std::int64_t i) {
  if (dtype == DType::f32) return at<float>(from, i);
  if (dtype == DType::f16) return half_to_float(at<std::uint16_t>(from, i));
  return to_float(at<BFloat16>(from, i));
}

/// A panel's numbers [8, columns], taken from the bits as kernels do: lane by lane and word by
/// word.
std::vector<float> numbers_of_panel(const CodedPanels& panels, const std::byte* panel) {
  std::vector<float> numbers(static_cast<std::size_t>(panel_rows * panels.columns));
  const bool packed = is_packed(panels.kind);
  for (std::int64_t u = 0; u < panels.units(); ++u) {
    const std::byte* const unit = panel + u * panels.unit_bytes();
    for (std::int64_t lane = 0; lane < 32; ++lane) {
      const std::int64_t row = lane / 4;
      for (std::int64_t step = 0; step < 8; ++step) {
        const auto word = packed ? at<std::uint32_t>(unit + 16 * lane, step / 2)
                                 : at<std::uint32_t>(unit + step / 4 * 512 + 16 * lane, step % 4);
        for (std::int64_t i = 0; i < 4; ++i) {
          const std::int64_t high = i / 2, second = i % 2;
          const std::int64_t in_unit = 16 * step + 8 * high + 2 * (lane % 4) + second;
          const std::int64_t column = u * unit_columns + in_unit;
          if (column >= panels.columns) continue;
          const std::int64_t shift =
              packed ? 4 * (step % 2 * 2 + high) + 16 * second : 8 * high + 16 * second;
          const auto code = static_cast<std::uint8_t>(word >> shift & (packed ? 0xFU : 0xFFU));
          float number = number_of(panels.kind, code), scale = 1.0F;
          if (panels.group_columns > 0) {
            const std::int64_t place = in_unit / panels.group_columns * panel_rows + row;
            scale = number_at(unit + panels.scales_at(), panels.scale_dtype, place);
            if (panels.has_zero_points) {
              number -= number_at(unit + panels.zeros_at(), DType::bf16, place) -
                        zero_offset(panels.kind);
            }
          }
          numbers[static_cast<std::size_t>(row * panels.columns + column)] = number * scale;
        }
      }
    }
  }
  return numbers;
}

void expect_numbers(const StoredMatrix& matrix, WeightEncoding encoding,
                    const CodedPanels& panels) {
  const CodedForm form = coded_form(matrix, encoding).form.value();
  const HostTensor numbers = numbers_of(matrix, form);
  std::vector<std::byte> panel(static_cast<std::size_t>(panels.panel_bytes()));
  std::vector<CodedRow> rows(panel_rows);
  for (std::int64_t first = 0; first < panels.rows; first += panel_rows) {
    for (std::int64_t r = 0; r < panel_rows; ++r) {
      read_coded_row(matrix, form, first + r, rows[static_cast<std::size_t>(r)]);
    }
    write_panel(rows, form, panels, panel.data());
    const std::vector<float> found = numbers_of_panel(panels, panel.data());
    for (std::int64_t i = 0; i < panel_rows * panels.columns; ++i) {
      const std::int64_t r = i / panels.columns;
      const CodedRow& row = rows[static_cast<std::size_t>(r)];
      const float scale = panels.group_columns > 0 ? row.row_scale : row.scales.front().scale;
      const float number = found[static_cast<std::size_t>(i)] * scale;
      const float expected = numbers->as<float>()[first * panels.columns + i];
      // A row's scale is multiplied with each other scale first, which rounds.
      const float rounding = row.row_scale != 1.0F ? std::abs(expected) * 0x1p-22F : 0.0F;
      ASSERT_NEAR(number, expected, rounding)
          << "row " << first + r << ", column " << i % panels.columns;
    }
  }
}

class CodedPanelsOf : public testing::TestWithParam<CodesCase> {};

TEST_P(CodedPanelsOf, a_matrix_and_its_columns_hold_their_numbers) {
  std::mt19937 engine(3);
  for (const auto& [n, k] : {std::pair{8, 8}, {48, 704}, {16, 1032}}) {
    SCOPED_TRACE(testing::Message() << n << " x " << k);
    const RandomCodes made = random_codes(engine, GetParam(), n, k);
    const PanelChoice choice = coded_panels(made.matrix, WeightEncoding::plain);
    if (GetParam().scheme.group_columns == 24) {
      EXPECT_EQ(choice.obstacle, "its groups of 24 columns from column 0 are not whole 32s");
      continue;
    }
    ASSERT_TRUE(choice.panels) << choice.obstacle;
    EXPECT_EQ(choice.panels->unit_bytes() % 16, 0);
    expect_numbers(made.matrix, WeightEncoding::plain, *choice.panels);
    if (k < 704) continue;
    for (const std::int64_t begin : {64, 352, 40}) {
      const StoredMatrix part = columns_of(made.matrix, begin, 352);
      const PanelChoice of_part = coded_panels(part, WeightEncoding::plain);
      const bool is_whole = GetParam().scheme.group_columns == 0 || begin % 32 == 0;
      ASSERT_EQ(of_part.panels.has_value(), is_whole) << begin << ": " << of_part.obstacle;
      if (is_whole) expect_numbers(part, WeightEncoding::plain, *of_part.panels);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CodedPanelsOf, testing::ValuesIn(codes_cases),
                         [](const auto& info) { return info.param.name(); });

TEST(CodedPanels, hold_codes_of_numbers) {
  std::mt19937 engine(5);
  HostTensor weight(DType::f32, {24, 328});
  std::normal_distribution<float> normal;
  for (float& number : weight->span<float>()) number = normal(engine);
  const StoredMatrix matrix = stored_matrix_of(weight, DType::bf16);
  for (const WeightEncoding encoding :
       {WeightEncoding::int8, WeightEncoding::int4, WeightEncoding::fp8}) {
    const PanelChoice choice = coded_panels(matrix, encoding);
    ASSERT_TRUE(choice.panels) << choice.obstacle;
    expect_numbers(matrix, encoding, *choice.panels);
  }
  EXPECT_EQ(coded_panels(matrix, WeightEncoding::int4).panels->unit_bytes(), 528);
  EXPECT_FALSE(coded_panels(matrix, WeightEncoding::plain).panels);
}

TEST(CodedPanels, are_not_of_odd_shapes) {
  std::mt19937 engine(7);
  const RandomCodes made = random_codes(engine, codes_cases[0], 30, 64);
  EXPECT_EQ(coded_panels(made.matrix, WeightEncoding::plain).obstacle,
            "its shape [30, 64] is not in multiples of 8");
}

TEST(CodedPanels, keep_scales_that_are_halves) {
  std::mt19937 engine(9);
  const RandomCodes made = random_codes(engine, codes_cases[8], 8, 128);
  auto* const scales = static_cast<std::uint16_t*>(made.scales->data());
  scales[0] = 0x0001, scales[1] = 0x03FF, scales[2] = 0x0400, scales[3] = 0xBC01,
  scales[4] = 0x7BFF;
  const PanelChoice choice = coded_panels(made.matrix, WeightEncoding::plain);
  ASSERT_EQ(choice.panels->scale_dtype, DType::f16);
  expect_numbers(made.matrix, WeightEncoding::plain, *choice.panels);
}

}  // namespace
}  // namespace troupe
