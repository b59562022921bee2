#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "models/ops/coded_matrix.hpp"

namespace troupe {

// Matrices that stay codes in a GPU's memory. Eight rows are a panel, whose columns lie in units of
// 128: the unit's codes, then, unless a whole row shares one, the scales of its groups and what is
// subtracted from their codes. A panel's units follow each other, so that a kernel streams them.
//
// A unit's codes are in the order in which the lanes of a warp take them as the left operand of the
// tensor cores' instructions for 16 columns (mma and wgmma): lane 4 r + f has row r, and of step s
// the columns 16 s + 2 f + {0, 1, 8, 9}.
//
// - 4 bits: lane l has 16 bytes at 16 l, a word for each two steps; its 16-bit halves have the
//   first and the second of four pairs of columns, the lowest bits first.
// - 8 bits: lane l has 16 bytes at 16 l and at 512 + 16 l, a word for each step; bytes 0 and 2 are
//   the first pair, 1 and 3 the second.

inline constexpr std::int64_t panel_rows = 8, unit_columns = 128;
/// Columns of a group of NVFP4, a step of the tensor cores' instructions.
inline constexpr std::int32_t nvfp4_columns = 16;

/// Device memory in which parts of matrices become bf16 for products of many rows, and are
/// rearranged when a layer falls back: taken with the first matrix that may need it.
inline constexpr std::size_t decoded_codes_bytes = std::size_t{128} << 20;

/// The layout of a matrix in panels: rows and columns are multiples of 8. Columns that the last
/// unit lacks have codes of 0.
struct CodedPanels {
  CodeKind kind = CodeKind::int4;
  std::int64_t rows = 0, columns = 0;
  /// Columns of a unit that share a scale: 16, 32, 64 or 128; 0: all of a row do, and the scales
  /// are not in the units. Scales of 16 are numbers of E4M3, in bf16, which are times the row's.
  std::int32_t group_columns = 0;
  DType scale_dtype = DType::f32;  ///< f32, bf16 or f16, of scales in units
  bool has_zero_points = false;    ///< only with scales in units
  bool operator==(const CodedPanels&) const = default;

  std::int64_t panels() const { return rows / panel_rows; }
  std::int64_t units() const {
    return (columns + unit_columns - 1) / unit_columns;
  }  ///< of a panel
  /// True if there are scales of whole rows, beside the panels.
  bool has_row_scales() const { return group_columns == 0 || group_columns == nvfp4_columns; }
  std::int64_t groups_of_unit() const {
    return group_columns > 0 ? unit_columns / group_columns : 0;
  }
  /// The first byte of a unit's scales: [groups, 8].
  std::int64_t scales_at() const { return panel_rows * unit_columns / (is_packed(kind) ? 2 : 1); }
  /// The first byte of a unit's zero points: [groups, 8] bf16, zero_offset() more than they are.
  std::int64_t zeros_at() const {
    return scales_at() +
           groups_of_unit() * panel_rows * static_cast<std::int64_t>(size_of(scale_dtype));
  }
  std::int64_t unit_bytes() const {  ///< a multiple of 16
    const auto bf16_bytes = static_cast<std::int64_t>(size_of(DType::bf16));
    return zeros_at() + (has_zero_points ? groups_of_unit() * panel_rows * bf16_bytes : 0);
  }
  std::int64_t panel_bytes() const { return units() * unit_bytes(); }
  /// Bytes of all panels, and of the rows' scales [rows] f32 beside them.
  std::int64_t code_bytes() const { return panels() * panel_bytes(); }
  std::int64_t scale_bytes() const {
    return has_row_scales() ? rows * static_cast<std::int64_t>(size_of(DType::f32)) : 0;
  }
};

/// Kernels make the 4 bits of int4 the number 128 + bits, of which bits - 8 are to remain.
constexpr float zero_offset(CodeKind kind) { return kind == CodeKind::int4 ? 136.0F : 0.0F; }

/// What a matrix is held as, and what was in the way of panels.
struct PanelChoice {
  std::optional<CodedPanels> panels = std::nullopt;
  std::string obstacle = {};  ///< empty: it has no codes, and none are asked for
};

/// The panels of a matrix that has a coded_form, if GPUs multiply it. From headers alone.
PanelChoice coded_panels(const StoredMatrix& matrix, WeightEncoding encoding);

/// Writes a panel of eight rows of `form`. `out` has panel_bytes(), aligned to 4 bytes.
void write_panel(std::span<const CodedRow> rows, const CodedForm& form, const CodedPanels& panels,
                 std::byte* out);

/// "int4 codes, groups of 128, zero points".
std::string describe(const CodedPanels& panels);

}  // namespace troupe
