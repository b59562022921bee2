#include "models/ops/coded_matrix.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/ops/fp8_rows.hpp"
#include "parallel/device/convert.hpp"

namespace troupe {
namespace {

/// Columns that share a scale in WeightEncoding::int4.
constexpr std::int64_t int4_group = 128;
/// With more columns the products of two bytes could overflow 32 bits.
constexpr std::int64_t most_rounded_columns = 65536;
constexpr float int8_max = 127.0F, int4_max = 7.5F;
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

CodedForm form_of(const StoredPart& part) {
  const StoredTensor& stored = part.matrix;
  const DType scales = stored.companion.dtype();
  const bool is_narrow = scales == DType::bf16 || scales == DType::u8;
  return {.kind = stored.format->kind,
          .group_columns = stored.scheme.group_columns,
          .first_column = part.cols.begin,
          .scale_dtype = is_narrow ? DType::bf16 : DType::f32,
          .may_have_zero_points = stored.scheme.has_zero_points,
          .has_row_scales = !stored.format->tensor_scale.empty()};
}

/// Has products round activations, if the encoding asks for it and they can.
CodedForm with_rounded_rows(CodedForm form, WeightEncoding encoding, std::int64_t columns) {
  const bool is_asked = encoding == WeightEncoding::w8a8 || encoding == WeightEncoding::plain_w8a8;
  form.rounds_rows = is_asked && form.kind == CodeKind::int8 && !form.may_have_zero_points &&
                     columns <= most_rounded_columns;
  return form;
}

/// The form that an encoding gives numbers.
CodedForm form_of(WeightEncoding encoding, std::int64_t first_column) {
  CodedForm form{.first_column = first_column};
  if (encoding == WeightEncoding::fp8) form.kind = CodeKind::e4m3;
  if (encoding == WeightEncoding::int4) {
    form.kind = CodeKind::int4;
    form.group_columns = int4_group;
    form.scale_dtype = DType::bf16;
  }
  return form;
}

float scale_for(CodeKind kind, float largest) {
  if (kind == CodeKind::e4m3) return fp8_row_scale(largest);
  if (!std::isfinite(largest)) return not_a_number;
  if (kind == CodeKind::int8) return largest > 0.0F ? largest / int8_max : 1.0F;
  const float scale = to_float(to_bfloat16(largest / int4_max));
  return scale > 0.0F ? scale : 1.0F;
}

void make_codes_of(CodeKind kind, std::span<const float> numbers, float scale, std::uint8_t* out) {
  const float factor = 1.0F / scale;
  if (!std::isfinite(factor)) {
    std::fill_n(out, numbers.size(), zero_code(kind));
    return;
  }
  if (kind == CodeKind::e4m3) {
    for (const float number : numbers) *out++ = float_to_e4m3(number * factor);
    return;
  }
  const float most = kind == CodeKind::int4 ? 7.0F : int8_max;
  const float least = kind == CodeKind::int4 ? -8.0F : -int8_max;
  const int offset = zero_code(kind);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const float code = std::nearbyint(std::clamp(numbers[i] * factor, least, most));
    out[i] = static_cast<std::uint8_t>(static_cast<int>(code) + offset);
  }
}

/// Reads a row of a part that is stored as codes.
void read_codes(const StoredMatrix& matrix, const CodedForm& form, const StoredPart& part,
                std::int64_t row, CodedRow& out) {
  const StoredTensor& stored = part.matrix;
  const WeightFormat& format = *stored.format;
  const std::int64_t stored_row =
      (part.rows.begin + row) * std::max<std::int64_t>(part.row_step, 1);
  format.codes_of(stored, stored_row, part.cols.begin, matrix.columns, out.codes.data());
  out.row_scale = stored.tensor_scale;
  const std::int64_t first_group =
      form.group_columns > 0 ? part.cols.begin / form.group_columns : 0;
  for (std::size_t g = 0; g < out.scales.size(); ++g) {
    CodeScale& scale = out.scales[g];
    scale = format.scale_of(stored, stored_row, first_group + static_cast<std::int64_t>(g));
    scale.zero -= format.kind_offset + zero_code(format.kind);
  }
  if (format.kind_offset != 0) {
    for (std::uint8_t& code : out.codes) code -= format.kind_offset;
  }
  if (format.kind != CodeKind::e4m3) return;
  for (std::int64_t i = 0; i < matrix.columns; ++i) {
    const bool is_nan = (out.codes[static_cast<std::size_t>(i)] & 0x7F) == 0x7F;
    if (is_nan) out.scales[static_cast<std::size_t>(form.group_of(i))].scale = not_a_number;
  }
}

/// Makes codes of a row of a part that is stored as numbers.
void make_codes(const StoredMatrix& matrix, const CodedForm& form, const StoredPart& part,
                std::int64_t row, CodedRow& out) {
  const std::int64_t stored_columns = part.matrix.view[1];
  const std::int64_t width = form.group_columns > 0 ? form.group_columns : stored_columns;
  const std::int64_t end = part.cols.begin + part.cols.count;
  const std::int64_t first = part.cols.begin / width * width;
  const std::int64_t columns = std::min((end + width - 1) / width * width, stored_columns) - first;
  StoredPart whole = part;  // whole groups
  whole.cols = {first, columns};
  const HostTensor numbers(DType::f32, {1, columns});
  if (matrix.dtype == DType::bf16) {
    const HostTensor rounded(DType::bf16, {1, columns});
    copy_rows(whole, row, 1, DType::bf16, rounded->data());
    convert(rounded, numbers);
  } else {
    copy_rows(whole, row, 1, DType::f32, numbers->data());
  }
  const std::span<const float> all = numbers->span<float>();
  for (std::int64_t begin = part.cols.begin; begin < end;) {
    const std::int64_t group_begin = begin / width * width;
    const std::int64_t group_end = std::min(group_begin + width, stored_columns);
    const std::int64_t stop = std::min(group_end, end);
    const auto group = all.subspan(static_cast<std::size_t>(group_begin - first),
                                   static_cast<std::size_t>(group_end - group_begin));
    const std::int64_t at = begin - part.cols.begin;
    const float scale = scale_for(form.kind, largest_magnitude(group));
    out.scales[static_cast<std::size_t>(form.group_of(at))].scale = scale;
    make_codes_of(form.kind,
                  all.subspan(static_cast<std::size_t>(begin - first),
                              static_cast<std::size_t>(stop - begin)),
                  scale, out.codes.data() + at);
    begin = stop;
  }
}

}  // namespace

FormChoice coded_form(const StoredMatrix& matrix, WeightEncoding encoding) {
  if (matrix.parts.empty()) return {};
  const StoredPart& first = matrix.parts.front();
  const auto has_codes = [](const StoredPart& part) { return part.matrix.format != nullptr; };
  if (std::ranges::none_of(matrix.parts, has_codes)) {
    if (encoding == WeightEncoding::plain || encoding == WeightEncoding::plain_w8a8) return {};
    const bool among_others = std::ranges::any_of(
        matrix.parts, [](const StoredPart& part) { return part.row_step != 0; });
    if (among_others) return {.obstacle = "it is stored by columns"};
    return {.form =
                with_rounded_rows(form_of(encoding, first.cols.begin), encoding, matrix.columns)};
  }
  const auto gives_codes = [](const StoredPart& part) {
    return part.matrix.format != nullptr && part.matrix.format->codes_of != nullptr;
  };
  if (!std::ranges::all_of(matrix.parts, gives_codes)) {
    return {.obstacle = "some of its parts are stored as numbers"};
  }
  CodedForm form = form_of(first);
  for (const StoredPart& part : matrix.parts) {
    const CodedForm own = form_of(part);
    if (!part.matrix.group_index.empty()) {
      return {.obstacle = "its columns are in groups by g_idx (act-order)"};
    }
    if (own.kind != form.kind || own.group_columns != form.group_columns ||
        own.first_column != form.first_column || own.has_row_scales != form.has_row_scales) {
      return {.obstacle = "its parts are stored in different schemes"};
    }
    form.may_have_zero_points |= own.may_have_zero_points;
    if (own.scale_dtype == DType::f32) form.scale_dtype = DType::f32;
  }
  return {.form = with_rounded_rows(form, encoding, matrix.columns)};
}

FormChoice coded_form(std::span<const StoredMatrix> matrices, WeightEncoding encoding) {
  if (matrices.empty()) return {};
  const FormChoice first = coded_form(matrices.front(), encoding);
  for (const StoredMatrix& matrix : matrices.subspan(1)) {
    const FormChoice own = coded_form(matrix, encoding);
    if (own.form == first.form) continue;
    if (!own.obstacle.empty()) return {.obstacle = own.obstacle};
    if (!first.obstacle.empty()) return first;
    return {.obstacle = "its experts are stored in different schemes"};
  }
  return first;
}

StoredMatrix stored_matrix_of(const Tensor& weight, DType dtype) {
  StoredMatrix stored{.rows = weight[0], .columns = weight[1], .dtype = dtype};
  stored.parts.push_back(
      {.matrix = {.view = weight}, .rows = {0, weight[0]}, .cols = {0, weight[1]}});
  return stored;
}

std::vector<CodeRun> code_runs(const CodedForm& form, std::int64_t k, int segments) {
  std::vector<CodeRun> runs;
  const std::int64_t segment_k = k / segments;
  for (std::int64_t begin = 0; begin < k;) {
    std::int64_t end = (begin / segment_k + 1) * segment_k;
    if (form.group_columns > 0) {
      const std::int64_t group = (form.first_column + begin) / form.group_columns;
      end = std::min(end, (group + 1) * form.group_columns - form.first_column);
    }
    runs.push_back({begin, end - begin});
    begin = end;
  }
  return runs;
}

std::int64_t code_bytes(const CodedForm& form, std::span<const CodeRun> runs, std::int64_t rows) {
  std::int64_t codes = 0;
  for (const CodeRun& run : runs) codes += padded_codes(form, run.count);
  return rows * (is_packed(form.kind) ? codes / 2 : codes);
}

std::int64_t scale_bytes(const CodedForm& form, std::span<const CodeRun> runs, std::int64_t rows) {
  const std::size_t each =
      size_of(form.scale_dtype) + (form.may_have_zero_points ? size_of(DType::bf16) : 0);
  return rows * std::ssize(runs) * static_cast<std::int64_t>(each);
}

void read_coded_row(const StoredMatrix& matrix, const CodedForm& form, std::int64_t row,
                    CodedRow& out) {
  const auto k = static_cast<std::size_t>(matrix.columns);
  const auto groups = static_cast<std::size_t>(form.group_of(matrix.columns - 1) + 1);
  out.codes.assign(k, zero_code(form.kind));
  out.scales.assign(groups, {});
  out.row_scale = 1.0F;
  for (const StoredPart& part : matrix.parts) {
    if (row >= part.rows.count) {
      row -= part.rows.count;
      continue;
    }
    if (part.matrix.format != nullptr) {
      read_codes(matrix, form, part, row, out);
    } else {
      make_codes(matrix, form, part, row, out);
    }
    return;
  }
}

}  // namespace troupe
