#include "models/ops/coded_panels.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

namespace troupe {
namespace {

constexpr std::int64_t row_unit = 8;  // columns of 16 bytes of bf16, which kernels load at once

/// The bits of a number that a half is.
std::uint16_t half_bits(float number) {
  const auto bits = std::bit_cast<std::uint32_t>(number);
  const std::uint32_t sign = bits >> 16 & 0x8000U;
  if (!std::isfinite(number)) return static_cast<std::uint16_t>(sign | 0x7E00U);
  const float magnitude = std::abs(number);
  if (magnitude < 0x1p-14F) {
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(magnitude * 0x1p24F));
  }
  return static_cast<std::uint16_t>(sign | ((bits & 0x7FFFFFFFU) - (112U << 23)) >> 13);
}

void put_scale(DType dtype, float scale, std::byte* to) {
  if (dtype == DType::f32) {
    std::memcpy(to, &scale, sizeof scale);
    return;
  }
  const std::uint16_t bits =
      dtype == DType::f16 ? half_bits(scale) : std::bit_cast<std::uint16_t>(to_bfloat16(scale));
  std::memcpy(to, &bits, sizeof bits);
}

bool all_scales_are_halves(const StoredMatrix& matrix) {
  return std::ranges::all_of(matrix.parts, [](const StoredPart& part) {
    return part.matrix.format != nullptr && part.matrix.companion.dtype() == DType::f16;
  });
}

/// The most columns that each lie in one group wherever units begin; 0: none. MXFP4 has groups of
/// 32, for which kernels are made.
std::int32_t shared_columns(const CodedForm& form) {
  if (form.has_row_scales) {
    const bool fits = form.group_columns == nvfp4_columns && form.first_column % nvfp4_columns == 0;
    return fits ? nvfp4_columns : 0;
  }
  for (const std::int32_t columns : {128, 64, 32}) {
    if (form.kind == CodeKind::e2m1 && columns > 32) continue;
    if (form.group_columns % columns == 0 && form.first_column % columns == 0) return columns;
  }
  return 0;
}

struct Place {
  std::int64_t byte = 0;  ///< in a unit
  int shift = 0;
};

/// The place of the code of a unit's column and a panel's row.
Place place_of(bool packed, std::int64_t row, std::int64_t column) {
  const std::int64_t step = column / 16, high = column / 8 % 2, fourth = column / 2 % 4;
  const std::int64_t second = column % 2, lane = 4 * row + fourth;
  if (packed) {
    const std::int64_t nibble = 2 * (step % 2) + high + 4 * second;
    return {16 * lane + 4 * (step / 2) + nibble / 2, static_cast<int>(nibble % 2) * 4};
  }
  return {step / 4 * 512 + 16 * lane + 4 * (step % 4) + high + 2 * second, 0};
}

/// Writes 4-bit codes of a panel's row, of whole units, to their places.
void put_packed_codes(const std::vector<std::uint8_t>& codes, const CodedPanels& panels,
                      std::int64_t row, std::byte* out) {
  constexpr std::int64_t of_word = 32;  // columns that the words of four lanes have
  for (std::int64_t unit = 0; unit < panels.units(); ++unit) {
    std::byte* const to = out + unit * panels.unit_bytes() + row * (unit_columns / 2);
    for (std::int64_t column = 0; column < unit_columns; column += of_word) {
      const std::uint8_t* from = codes.data() + unit * unit_columns + column;
      for (std::int64_t fourth = 0; fourth < 4; ++fourth, from += 2) {
        std::uint32_t word = 0;
        for (int i = 0; i < 4; ++i) {
          word |= std::uint32_t{from[8 * i]} << (4 * i);
          word |= std::uint32_t{from[8 * i + 1]} << (16 + 4 * i);
        }
        std::memcpy(to + 16 * fourth + column / 8, &word, sizeof word);
      }
    }
  }
}

}  // namespace

PanelChoice coded_panels(const StoredMatrix& matrix, WeightEncoding encoding) {
  const FormChoice choice = coded_form(matrix, encoding);
  if (!choice.form) return {.obstacle = std::string(choice.obstacle)};
  const CodedForm& form = *choice.form;
  if (matrix.columns % row_unit != 0 || matrix.rows % panel_rows != 0) {
    return {.obstacle = fmt::format("its shape [{}, {}] is not in multiples of 8", matrix.rows,
                                    matrix.columns)};
  }
  const auto is_fractional = [](const StoredPart& part) {
    return part.matrix.format != nullptr && part.matrix.format->has_fractional_zeros;
  };
  if (std::ranges::any_of(matrix.parts, is_fractional)) {
    return {.obstacle = "its zero points are no whole numbers"};
  }
  CodedPanels panels{.kind = form.kind,
                     .rows = matrix.rows,
                     .columns = matrix.columns,
                     .has_zero_points = form.may_have_zero_points};
  if (form.group_columns > 0) {
    panels.group_columns = shared_columns(form);
    if (panels.group_columns == 0) {
      return {.obstacle = fmt::format("its groups of {} columns from column {} are not whole {}s",
                                      form.group_columns, form.first_column,
                                      form.has_row_scales ? nvfp4_columns : 32)};
    }
  } else if (form.may_have_zero_points) {
    panels.group_columns = unit_columns;
  }
  if (panels.group_columns > 0) {
    panels.scale_dtype = all_scales_are_halves(matrix) ? DType::f16
                         : form.has_row_scales         ? DType::bf16
                                                       : form.scale_dtype;
  }
  return {.panels = panels};
}

void write_panel(std::span<const CodedRow> rows, const CodedForm& form, const CodedPanels& panels,
                 std::byte* out) {
  const bool packed = is_packed(panels.kind);
  const std::int64_t unit_bytes = panels.unit_bytes();
  std::memset(out, 0, static_cast<std::size_t>(panels.panel_bytes()));
  const auto scale_bytes = static_cast<std::int64_t>(size_of(panels.scale_dtype));
  const bool in_words = packed && std::endian::native == std::endian::little;
  std::vector<std::uint8_t> whole;  // a row's codes, of whole units
  for (std::int64_t r = 0; r < panel_rows; ++r) {
    const CodedRow& row = rows[static_cast<std::size_t>(r)];
    if (in_words) {
      whole = row.codes;
      whole.resize(static_cast<std::size_t>(panels.units() * unit_columns), zero_code(panels.kind));
      put_packed_codes(whole, panels, r, out);
    }
    for (std::int64_t column = 0; column < unit_columns && !in_words; ++column) {
      const Place place = place_of(packed, r, column);
      for (std::int64_t unit = 0; unit < panels.units(); ++unit) {
        const std::int64_t at = unit * unit_columns + column;
        const bool there = at < panels.columns;
        const std::uint8_t code =
            there ? row.codes[static_cast<std::size_t>(at)] : zero_code(panels.kind);
        out[unit * unit_bytes + place.byte] |= static_cast<std::byte>(code << place.shift);
      }
    }
    for (std::int64_t unit = 0; unit < panels.units(); ++unit) {
      for (std::int64_t group = 0; group < panels.groups_of_unit(); ++group) {
        const std::int64_t first = unit * unit_columns + group * panels.group_columns;
        const bool there = first < panels.columns;
        const CodeScale scale =
            there ? row.scales[static_cast<std::size_t>(form.group_of(first))] : CodeScale{};
        const std::int64_t place = group * panel_rows + r;
        std::byte* const begin = out + unit * unit_bytes;
        put_scale(panels.scale_dtype, scale.scale,
                  begin + panels.scales_at() + place * scale_bytes);
        if (!panels.has_zero_points) continue;
        put_scale(DType::bf16, scale.zero + zero_offset(panels.kind),
                  begin + panels.zeros_at() + place * 2);
      }
    }
  }
}

std::string describe(const CodedPanels& panels) {
  return fmt::format(
      "{} codes{}{}", name_of(panels.kind, panels.group_columns == nvfp4_columns),
      panels.group_columns > 0 ? fmt::format(", groups of {}", panels.group_columns) : "",
      panels.has_zero_points ? ", zero points" : "");
}

}  // namespace troupe
