#include "models/ops/weight_format.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>

#include "models/ops/stored_matrix.hpp"
#include "models/ops/unaligned.hpp"

namespace troupe {
namespace {

std::int64_t ceil_div(std::int64_t amount, std::int64_t by) { return (amount + by - 1) / by; }

/// Code number `i` of the `bits`-wide ones from `word` of a tensor of 32-bit words on, the lowest
/// bits first.
template <int bits>
std::uint8_t packed_code(const Tensor& words, std::int64_t word, std::int64_t i) {
  constexpr std::int64_t in_word = 32 / bits;
  const auto value = load_unaligned<std::uint32_t>(words.data(), word + i / in_word);
  return static_cast<std::uint8_t>(value >> (i % in_word * bits) & ((1U << bits) - 1));
}

/// The number that a 4-bit code with 2 bits of exponent and 1 of fraction is (OCP Microscaling
/// Formats Specification 1.0, 2023, E2M1).
constexpr std::array<float, 16> e2m1_numbers = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,
                                                4.0F,  6.0F,  -0.0F, -0.5F, -1.0F, -1.5F,
                                                -2.0F, -3.0F, -4.0F, -6.0F};

// Codings: `code` is the code at [row, column] of the matrix as it is stored, `number` the number
// that it stands for, `zero` the zero point of a group, and `scale_index` the place of its scale.
// `row_group` and `group` count groups of rows and columns.

/// Codes that are their numbers.
struct Unsigned {
  static float number(std::uint8_t code) { return code; }
};

/// True of 4-bit codes that lie side by side in a row.
template <bool value>
struct Nibbles {
  static constexpr bool has_nibbles = value;
};

/// Scales and zero points are [groups of rows, groups of columns].
struct ScalesByRow {
  static std::int64_t scale_index(const StoredTensor& matrix, std::int64_t /*row*/,
                                  std::int64_t row_group, std::int64_t group) {
    return row_group * matrix.groups[1] + group;
  }
};

/// Scales are [groups of columns, rows].
struct ScalesByColumn {
  static std::int64_t scale_index(const StoredTensor& matrix, std::int64_t row, std::int64_t,
                                  std::int64_t group) {
    return group * matrix.groups[0] + row;
  }
};

struct Fp8 : ScalesByRow, Nibbles<false> {
  static float number(std::uint8_t code) {
    static const std::array<float, 256> numbers = [] {
      std::array<float, 256> all{};
      for (std::size_t code = 0; code < all.size(); ++code) {
        all[code] = e4m3_to_float(static_cast<std::uint8_t>(code));
      }
      return all;
    }();
    return numbers[code];
  }
  static std::uint8_t code(const StoredTensor& matrix, std::int64_t row, std::int64_t column) {
    return load_unaligned<std::uint8_t>(matrix.view.data(), row * matrix.view[1] + column);
  }
  static float zero(const StoredTensor&, std::int64_t, std::int64_t, std::int64_t) { return 0.0F; }
};

struct Int8 : ScalesByRow, Nibbles<false> {
  static float number(std::uint8_t code) { return static_cast<std::int8_t>(code); }
  static std::uint8_t code(const StoredTensor& matrix, std::int64_t row, std::int64_t column) {
    return load_unaligned<std::uint8_t>(matrix.view.data(), row * matrix.view[1] + column);
  }
  static float zero(const StoredTensor& matrix, std::int64_t row, std::int64_t row_group,
                    std::int64_t group) {
    if (!matrix.scheme.has_zero_points) return 0.0F;
    return load_unaligned<std::int8_t>(matrix.zero_points.data(),
                                       scale_index(matrix, row, row_group, group));
  }
};

/// Signed codes, stored with half of their range added; zero points likewise, packed over rows.
template <int bits>
struct Packed : ScalesByRow, Unsigned, Nibbles<bits == 4> {
  static std::uint8_t code(const StoredTensor& matrix, std::int64_t row, std::int64_t column) {
    return packed_code<bits>(matrix.view, row * matrix.view[1], column);
  }
  static float zero(const StoredTensor& matrix, std::int64_t, std::int64_t row_group,
                    std::int64_t group) {
    if (!matrix.scheme.has_zero_points) return 1 << (bits - 1);
    constexpr std::int64_t in_word = 32 / bits;
    const std::int64_t word = row_group / in_word * matrix.groups[1] + group;
    return packed_code<bits>(matrix.zero_points, word, row_group % in_word);
  }
};

template <int bits>
struct Gptq : ScalesByColumn, Unsigned, Nibbles<false> {
  static constexpr std::int64_t in_word = 32 / bits;
  static std::uint8_t code(const StoredTensor& matrix, std::int64_t row, std::int64_t column) {
    const std::int64_t word = column / in_word * matrix.view[1] + row;
    return packed_code<bits>(matrix.view, word, column % in_word);
  }
  static float zero(const StoredTensor& matrix, std::int64_t row, std::int64_t,
                    std::int64_t group) {
    const std::int64_t words = ceil_div(matrix.groups[0], in_word);
    const float stored = packed_code<bits>(matrix.zero_points, group * words, row);
    return matrix.scheme.zeros_less_one ? stored + 1 : stored;
  }
};

struct Awq : ScalesByColumn, Unsigned, Nibbles<false> {
  /// The place of row i % 8's code in its word.
  static std::int64_t place_of(std::int64_t i) {
    constexpr std::array<std::int64_t, 8> places = {0, 4, 1, 5, 2, 6, 3, 7};
    return places[static_cast<std::size_t>(i % 8)];
  }
  static std::uint8_t code(const StoredTensor& matrix, std::int64_t row, std::int64_t column) {
    return packed_code<4>(matrix.view, column * matrix.view[1] + row / 8, place_of(row));
  }
  static float zero(const StoredTensor& matrix, std::int64_t row, std::int64_t,
                    std::int64_t group) {
    const std::int64_t words = ceil_div(matrix.groups[0], 8);
    return packed_code<4>(matrix.zero_points, group * words + row / 8, place_of(row));
  }
};

/// Numbers of 4 bits (E2M1), which MXFP4 and NVFP4 have. Rows are the last extents but those of one
/// row's bytes.
struct E2m1 : ScalesByRow, Nibbles<true> {
  static float number(std::uint8_t code) { return e2m1_numbers[code]; }
  static std::uint8_t code(const StoredTensor& matrix, std::int64_t row, std::int64_t column) {
    const auto byte =
        load_unaligned<std::uint8_t>(matrix.view.data(), row * matrix.view[1] + column / 2);
    return column % 2 == 0 ? byte & 0xF : byte >> 4;
  }
  static float zero(const StoredTensor&, std::int64_t, std::int64_t, std::int64_t) { return 0.0F; }
};

/// The nearest number of f16, ties to even, without its bound: what libraries make of f16 scales.
float rounded_to_half(float number) {
  constexpr float smallest_normal = 0x1p-14F, spacing_below = 0x1p-24F;
  if (std::abs(number) < smallest_normal) {
    return std::nearbyint(number / spacing_below) * spacing_below;
  }
  const auto bits = std::bit_cast<std::uint32_t>(number);
  return std::bit_cast<float>((bits + 0xFFFU + (bits >> 13 & 1U)) & ~0x1FFFU);
}

/// The group of row or column i; `size` 0: there is one.
std::int64_t group_of(std::int64_t i, std::int64_t size) { return size > 0 ? i / size : 0; }

template <class Coding>
void decode(const StoredTensor& matrix, std::int64_t row, std::int64_t first, std::int64_t count,
            float* out) {
  const bool is_bf16 = matrix.dtype() == DType::bf16;
  const bool is_indexed = !matrix.group_index.empty();
  const std::int64_t row_group = group_of(row, matrix.scheme.group_rows);
  std::int64_t known = -1;
  float scale = 0.0F, zero = 0.0F;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t column = first + i;
    const std::int64_t group = is_indexed
                                   ? load_unaligned<std::int32_t>(matrix.group_index.data(), column)
                                   : group_of(column, matrix.scheme.group_columns);
    if (group != known) {
      known = group;
      scale = scale_at(matrix.companion, Coding::scale_index(matrix, row, row_group, group)) *
              matrix.tensor_scale;
      zero = Coding::zero(matrix, row, row_group, group);
    }
    const float number = (Coding::number(Coding::code(matrix, row, column)) - zero) * scale;
    out[i] = is_bf16 ? to_float(to_bfloat16(number)) : rounded_to_half(number);
  }
}

/// Of 4-bit codes that lie side by side in a row, the lower half of a byte first.
void codes_of_nibbles(const std::uint8_t* row, std::int64_t first, std::int64_t count,
                      std::uint8_t* out) {
  if (count > 0 && first % 2 != 0) {
    *out++ = row[first++ / 2] >> 4;
    --count;
  }
  const std::uint8_t* const bytes = row + first / 2;
  for (std::int64_t i = 0; i < count / 2; ++i) {
    out[2 * i] = bytes[i] & 0xF;
    out[2 * i + 1] = bytes[i] >> 4;
  }
  if (count % 2 != 0) out[count - 1] = bytes[count / 2] & 0xF;
}

template <class Coding>
void codes(const StoredTensor& matrix, std::int64_t row, std::int64_t first, std::int64_t count,
           std::uint8_t* out) {
  if constexpr (Coding::has_nibbles && std::endian::native == std::endian::little) {
    const auto row_bytes = matrix.view[1] * static_cast<std::int64_t>(size_of(matrix.view.dtype()));
    codes_of_nibbles(static_cast<const std::uint8_t*>(matrix.view.data()) + row * row_bytes, first,
                     count, out);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) out[i] = Coding::code(matrix, row, first + i);
}

template <class Coding>
CodeScale code_scale(const StoredTensor& matrix, std::int64_t row, std::int64_t group) {
  const std::int64_t row_group = group_of(row, matrix.scheme.group_rows);
  return {scale_at(matrix.companion, Coding::scale_index(matrix, row, row_group, group)),
          Coding::zero(matrix, row, row_group, group)};
}

Shape as_is(const Shape& shape) { return shape; }
Shape transposed(const Shape& shape) { return {shape[1], shape[0]}; }

/// [n, k] with so many codes of a row in an element.
template <std::int64_t in_element>
Shape packed_columns(const Shape& matrix) {
  return {matrix[0], ceil_div(matrix[1], in_element)};
}
/// [k, n] with so many codes of a column of the matrix in an element.
template <std::int64_t in_element>
Shape packed_rows_of_transposed(const Shape& matrix) {
  return {ceil_div(matrix[1], in_element), matrix[0]};
}

template <std::int64_t in_element>
Shape packed_row_groups(const Shape& groups, const Shape& /*matrix*/) {
  return {ceil_div(groups[0], in_element), groups[1]};
}
template <std::int64_t in_element>
Shape packed_rows(const Shape& groups, const Shape& matrix) {
  return {groups[1], ceil_div(matrix[0], in_element)};
}

/// [experts, inputs, outputs] as [experts, outputs, blocks of inputs, bytes].
Shape expert_blocks(const Shape& all) { return {all[0], all[2], ceil_div(all[1], 32), 16}; }

/// The format, whose codes are of `kind` and as Coding says.
template <class Coding>
constexpr WeightFormat with_coding(CodeKind kind, WeightFormat format) {
  format.decode = decode<Coding>;
  format.kind = kind;
  format.codes_of = codes<Coding>;
  format.scale_of = code_scale<Coding>;
  return format;
}

constexpr std::array formats{
    // Also DeepSeek-V3's, 2024, section 3.3.2.
    with_coding<Fp8>(CodeKind::e4m3, {.coding = WeightCoding::fp8,
                                      .name = "fp8",
                                      .file_type = "F8_E4M3",
                                      .scales = {"_scale", "_scale_inv"},
                                      .codes_shape = as_is,
                                      .scales_shape = as_is,
                                      .has_byte_codes = true}),
    with_coding<Int8>(CodeKind::int8, {.coding = WeightCoding::int8,
                                       .name = "int8",
                                       .file_type = "I8",
                                       .scales = {"_scale"},
                                       .zero_points = "_zero_point",
                                       .codes_shape = as_is,
                                       .scales_shape = as_is,
                                       .zero_points_shape = [](const Shape& groups,
                                                               const Shape&) { return groups; },
                                       .has_byte_codes = true}),
    with_coding<Packed<4>>(CodeKind::int4, {.coding = WeightCoding::packed_int4,
                                            .name = "packed int4",
                                            .file_type = "I32",
                                            .codes = "_packed",
                                            .scales = {"_scale"},
                                            .zero_points = "_zero_point",
                                            .group_index = "_g_idx",
                                            .codes_shape = packed_columns<8>,
                                            .scales_shape = as_is,
                                            .zero_points_shape = packed_row_groups<8>}),
    with_coding<Packed<8>>(CodeKind::int8, {.coding = WeightCoding::packed_int8,
                                            .name = "packed int8",
                                            .file_type = "I32",
                                            .codes = "_packed",
                                            .scales = {"_scale"},
                                            .zero_points = "_zero_point",
                                            .group_index = "_g_idx",
                                            .codes_shape = packed_columns<4>,
                                            .scales_shape = as_is,
                                            .zero_points_shape = packed_row_groups<4>,
                                            .kind_offset = 128}),
    // Frantar et al. 2022, GPTQ.
    with_coding<Gptq<4>>(CodeKind::int4, {.coding = WeightCoding::gptq_int4,
                                          .name = "GPTQ int4",
                                          .file_type = "I32",
                                          .stem = ".weight",
                                          .codes = ".qweight",
                                          .scales = {".scales"},
                                          .zero_points = ".qzeros",
                                          .group_index = ".g_idx",
                                          .codes_shape = packed_rows_of_transposed<8>,
                                          .scales_shape = transposed,
                                          .zero_points_shape = packed_rows<8>}),
    with_coding<Gptq<8>>(CodeKind::int8, {.coding = WeightCoding::gptq_int8,
                                          .name = "GPTQ int8",
                                          .file_type = "I32",
                                          .stem = ".weight",
                                          .codes = ".qweight",
                                          .scales = {".scales"},
                                          .zero_points = ".qzeros",
                                          .group_index = ".g_idx",
                                          .codes_shape = packed_rows_of_transposed<4>,
                                          .scales_shape = transposed,
                                          .zero_points_shape = packed_rows<4>,
                                          .kind_offset = 128}),
    // Lin et al. 2023, AWQ.
    with_coding<Awq>(CodeKind::int4, {.coding = WeightCoding::awq_int4,
                                      .name = "AWQ int4",
                                      .file_type = "I32",
                                      .stem = ".weight",
                                      .codes = ".qweight",
                                      .scales = {".scales"},
                                      .zero_points = ".qzeros",
                                      .codes_shape =
                                          [](const Shape& matrix) {
                                            return Shape{matrix[1], ceil_div(matrix[0], 8)};
                                          },
                                      .scales_shape = transposed,
                                      .zero_points_shape = packed_rows<8>}),
    with_coding<E2m1>(CodeKind::e2m1, {.coding = WeightCoding::mxfp4_packed,
                                       .name = "packed MXFP4",
                                       .file_type = "U8",
                                       .codes = "_packed",
                                       .scales = {"_scale"},
                                       .codes_shape = packed_columns<2>,
                                       .scales_shape = as_is}),
    // OpenAI 2025, gpt-oss model card, section 2.1.
    with_coding<E2m1>(CodeKind::e2m1, {.coding = WeightCoding::mxfp4_experts,
                                       .name = "MXFP4 of all experts",
                                       .file_type = "U8",
                                       .codes = "_blocks",
                                       .scales = {"_scales"},
                                       .codes_shape = expert_blocks,
                                       .scales_shape = as_is}),
    // NVIDIA 2025, Pretraining Large Language Models with NVFP4, section 2.
    with_coding<E2m1>(CodeKind::e2m1, {.coding = WeightCoding::nvfp4_packed,
                                       .name = "packed NVFP4",
                                       .file_type = "U8",
                                       .codes = "_packed",
                                       .scales = {"_scale"},
                                       .tensor_scale = "_global_scale",
                                       .divides_by_tensor_scale = true,
                                       .codes_shape = packed_columns<2>,
                                       .scales_shape = as_is}),
    with_coding<E2m1>(CodeKind::e2m1, {.coding = WeightCoding::nvfp4,
                                       .name = "NVFP4",
                                       .file_type = "U8",
                                       .scales = {"_scale"},
                                       .tensor_scale = "_scale_2",
                                       .codes_shape = packed_columns<2>,
                                       .scales_shape = as_is}),
};

}  // namespace

const WeightFormat& weight_format(WeightCoding coding) {
  return *std::ranges::find(formats, coding, &WeightFormat::coding);
}

Shape groups_of(const WeightScheme& scheme, const Shape& matrix) {
  const auto count = [](std::int64_t extent, std::int64_t size) {
    return size > 0 ? ceil_div(extent, size) : 1;
  };
  if (matrix.rank() == 3) {
    return {matrix[0], matrix[2], count(matrix[1], scheme.group_columns)};
  }
  return {count(matrix[0], scheme.group_rows), count(matrix[1], scheme.group_columns)};
}

float scale_at(const Tensor& scales, std::int64_t i) {
  switch (scales.dtype()) {
    case DType::bf16:
      return to_float(load_unaligned<BFloat16>(scales.data(), i));
    case DType::f16:
      return half_to_float(load_unaligned<std::uint16_t>(scales.data(), i));
    case DType::u8: {
      const auto exponent = load_unaligned<std::uint8_t>(scales.data(), i);
      if (exponent == 0xFF) return std::numeric_limits<float>::quiet_NaN();
      return std::ldexp(1.0F, exponent - 127);
    }
    case DType::f8_e4m3:
      return e4m3_to_float(load_unaligned<std::uint8_t>(scales.data(), i));
    default:
      return load_unaligned<float>(scales.data(), i);
  }
}

float e4m3_to_float(std::uint8_t code) {
  const int exponent = code >> 3 & 0xF, fraction = code & 7;
  const bool is_nan = exponent == 15 && fraction == 7;
  const float magnitude = is_nan ? std::numeric_limits<float>::quiet_NaN()
                          : exponent == 0
                              ? std::ldexp(static_cast<float>(fraction), -9)
                              : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

}  // namespace troupe
