#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "models/ops/linear.hpp"
#include "models/ops/stored_matrix.hpp"

namespace troupe {

// Matrices that stay codes in memory, for devices whose products decode them in registers. With x a
// row of activations, an element of x . weight^T is
//
//     sum over segments, as a tree, of
//       the chain over the segment's runs of  fma(part, scale, chain), where
//         part is the chain over the run's columns of  fma(x, code - zero, part)
//
// all in f32. A run is what a segment and a group of columns have in common, counted in columns of
// the stored matrix. So the bits depend on the matrix and on its segments, not on the ranks that
// share it, the rows of a pass or the instruction set. Numbers (code - zero) * scale are never
// rounded; WeightFormat::decode, for devices that widen them, rounds them.

/// How a matrix is held as codes.
struct CodedForm {
  CodeKind kind = CodeKind::int8;
  std::int64_t group_columns = 0;  ///< that share a scale; 0: all of a row
  std::int64_t first_column = 0;   ///< of the stored matrix
  DType scale_dtype = DType::f32;  ///< f32, or bf16 if that holds all scales
  bool may_have_zero_points = false;
  /// Scales of groups are numbers of E4M3, which are times one of the row (CodedRow::row_scale).
  bool has_row_scales = false;
  /// Products round activations to signed bytes, too (cpu/int8_gemm_kernels.hpp, cuda/gemm/).
  bool rounds_rows = false;
  bool operator==(const CodedForm&) const = default;
  /// Products do, and sums over whole rows have one scale: what GPUs do.
  bool rounds_whole_rows() const { return rounds_rows && group_columns == 0; }

  /// The group of a column of the held matrix; 0 is the first one's.
  std::int64_t group_of(std::int64_t column) const {
    if (group_columns == 0) return 0;
    return (first_column + column) / group_columns - first_column / group_columns;
  }
};

/// What a matrix is held as, and what was in the way of codes.
struct FormChoice {
  std::optional<CodedForm> form = std::nullopt;
  std::string_view obstacle = {};  ///< empty: it has no codes, and none are asked for
};

/// The form of a matrix whose parts are all stored as codes of one kind, or of one of numbers that
/// `encoding` turns into codes. From headers alone.
FormChoice coded_form(const StoredMatrix& matrix, WeightEncoding encoding);
/// The form that all of these have.
FormChoice coded_form(std::span<const StoredMatrix> matrices, WeightEncoding encoding);

/// A matrix [n, k] of numbers in host memory, which a device takes as `dtype`.
StoredMatrix stored_matrix_of(const Tensor& weight, DType dtype);

/// Neighbouring columns of one segment and one group.
struct CodeRun {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// The runs of k columns in `segments` equal parts, in order.
std::vector<CodeRun> code_runs(const CodedForm& form, std::int64_t k, int segments);

/// Bytes of the codes of so many rows of a matrix, runs padded (padded_codes).
std::int64_t code_bytes(const CodedForm& form, std::span<const CodeRun> runs, std::int64_t rows);
/// Bytes of their scales, and of zero points if there may be any.
std::int64_t scale_bytes(const CodedForm& form, std::span<const CodeRun> runs, std::int64_t rows);

/// The columns of codes that a run takes in a panel: 4-bit codes lie in eights, those of a form
/// that rounds rows in fours.
constexpr std::int64_t padded_codes(const CodedForm& form, std::int64_t count) {
  if (form.rounds_rows) return (count + 3) / 4 * 4;
  return is_packed(form.kind) ? (count + 7) / 8 * 8 : count;
}

/// For messages: "int4".
constexpr std::string_view name_of(CodeKind kind, bool has_row_scales = false) {
  if (has_row_scales) return "nvfp4";
  constexpr std::string_view names[] = {"int8", "fp8", "int4", "mxfp4"};
  return names[static_cast<std::size_t>(kind)];
}

/// The code of the number 0.
constexpr std::uint8_t zero_code(CodeKind kind) { return kind == CodeKind::int4 ? 8 : 0; }

/// One row of a matrix in its form.
struct CodedRow {
  std::vector<std::uint8_t> codes;  ///< [k], as CodeKind says
  std::vector<CodeScale> scales;    ///< [groups]; zero points are of these codes
  float row_scale = 1.0F;           ///< all scales are times this
};

/// Reads a row of `matrix`, whose form must be coded_form(matrix, encoding). A row that no part
/// fills is zero. The codes and scales that are made of numbers are the same however many ranks
/// share a row. A group that has codes of NaN, or numbers that are not finite, has a scale of NaN.
/// Throws std::bad_alloc. From any thread.
void read_coded_row(const StoredMatrix& matrix, const CodedForm& form, std::int64_t row,
                    CodedRow& out);

}  // namespace troupe
