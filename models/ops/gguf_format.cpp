#include "models/ops/gguf_format.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <type_traits>

#include "models/ops/stored_matrix.hpp"
#include "models/ops/unaligned.hpp"

namespace troupe {
namespace {

using Bytes = const std::uint8_t*;

float half_at(Bytes at) { return half_to_float(load_unaligned<std::uint16_t>(at, 0)); }

// Types: numbers(block, out) decodes a block, and `scale_places` are where it has numbers of f16;
// those with `group_columns` also have a block's codes, and scale(block, group). All follow
// ggml-quants.c, dequantize_row_*.

using Places = std::array<std::int64_t, 2>;

template <class Stored, DType dtype_>
struct Plain {
  static constexpr DType dtype = dtype_;
  static constexpr std::int64_t columns = 1, bytes = sizeof(Stored), group_columns = 0;
  static void numbers(Bytes block, float* out) {
    const auto stored = load_unaligned<Stored>(block, 0);
    if constexpr (std::is_same_v<Stored, float>) {
      *out = stored;
    } else if constexpr (std::is_same_v<Stored, BFloat16>) {
      *out = to_float(stored);
    } else {
      *out = half_to_float(stored);
    }
  }
};

/// The scale and zero point of codes that count steps from -least on. A group without steps is its
/// minimum: a code of 0, less a zero point of 1, times that.
CodeScale scale_of_steps(float step, float least) {
  if (step == 0.0F) return {.scale = least, .zero = 1.0F};
  return {.scale = step, .zero = least / step};
}

/// 32 signed bytes times a scale.
struct Q8_0 {
  static constexpr std::int64_t columns = 32, bytes = 34, group_columns = 32;
  static constexpr Places scale_places{0, 0};
  static constexpr CodeKind kind = CodeKind::int8;
  static void codes(Bytes block, std::uint8_t* out) { std::copy_n(block + 2, columns, out); }
  static CodeScale scale(Bytes block, std::int64_t) { return {.scale = half_at(block)}; }
  static void numbers(Bytes block, float* out) {
    const float scale = half_at(block);
    for (int i = 0; i < columns; ++i) out[i] = scale * static_cast<std::int8_t>(block[2 + i]);
  }
};

/// 32 codes of 4 bits, the first half of them in the lower bits of 16 bytes.
void four_bits(Bytes at, std::uint8_t* out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = at[i] & 0xF;
    out[16 + i] = at[i] >> 4;
  }
}

/// The same, and before these a fifth bit of each in four bytes.
void five_bits(Bytes at, std::uint8_t* out) {
  const auto fifth = load_unaligned<std::uint32_t>(at, 0);
  four_bits(at + 4, out);
  for (int i = 0; i < 32; ++i) out[i] |= static_cast<std::uint8_t>((fifth >> i & 1) << 4);
}

struct Q4_0 {
  static constexpr std::int64_t columns = 32, bytes = 18, group_columns = 32;
  static constexpr Places scale_places{0, 0};
  static constexpr CodeKind kind = CodeKind::int4;
  static void codes(Bytes block, std::uint8_t* out) { four_bits(block + 2, out); }
  static CodeScale scale(Bytes block, std::int64_t) {
    return {.scale = half_at(block), .zero = 8.0F};
  }
  static void numbers(Bytes block, float* out) {
    std::uint8_t of_block[columns];
    codes(block, of_block);
    const float scale = half_at(block);
    for (int i = 0; i < columns; ++i) out[i] = scale * static_cast<float>(of_block[i] - 8);
  }
};

struct Q5_0 {
  static constexpr std::int64_t columns = 32, bytes = 22, group_columns = 32;
  static constexpr Places scale_places{0, 0};
  static constexpr CodeKind kind = CodeKind::int8;
  static void codes(Bytes block, std::uint8_t* out) {
    five_bits(block + 2, out);
    for (int i = 0; i < columns; ++i) out[i] = static_cast<std::uint8_t>(out[i] - 16);
  }
  static CodeScale scale(Bytes block, std::int64_t) { return {.scale = half_at(block)}; }
  static void numbers(Bytes block, float* out) {
    std::uint8_t of_block[columns];
    codes(block, of_block);
    const float scale = half_at(block);
    for (int i = 0; i < columns; ++i) out[i] = scale * static_cast<std::int8_t>(of_block[i]);
  }
};

/// Q4_1 and Q5_1: 32 codes that count steps from a minimum on. The step, the minimum, the codes.
template <int bits>
struct WithMinimum {
  static constexpr std::int64_t columns = 32, bytes = bits == 4 ? 20 : 24, group_columns = 32;
  static constexpr Places scale_places{0, 2};
  static constexpr CodeKind kind = bits == 4 ? CodeKind::int4 : CodeKind::int8;
  static void all_codes(Bytes block, std::uint8_t* out) {
    if constexpr (bits == 4) {
      four_bits(block + 4, out);
    } else {
      five_bits(block + 4, out);
    }
  }
  static void codes(Bytes block, std::uint8_t* out) {
    all_codes(block, out);
    if (half_at(block) == 0.0F) std::fill_n(out, columns, std::uint8_t{0});
  }
  static CodeScale scale(Bytes block, std::int64_t) {
    return scale_of_steps(half_at(block), -half_at(block + 2));
  }
  static void numbers(Bytes block, float* out) {
    std::uint8_t of_block[columns];
    all_codes(block, of_block);
    const float step = half_at(block), minimum = half_at(block + 2);
    for (int i = 0; i < columns; ++i) out[i] = static_cast<float>(of_block[i]) * step + minimum;
  }
};

/// Scale and minimum of one of the eight groups of a K-quant, 6 bits each in 12 bytes.
struct KScales {
  std::uint8_t scale, minimum;

  KScales(Bytes scales, int group) {
    if (group < 4) {
      scale = scales[group] & 63;
      minimum = scales[group + 4] & 63;
    } else {
      scale = static_cast<std::uint8_t>((scales[group + 4] & 0xF) | (scales[group - 4] >> 6 << 4));
      minimum = static_cast<std::uint8_t>((scales[group + 4] >> 4) | (scales[group] >> 6 << 4));
    }
  }
};

/// 256 codes in groups of 32 with scales and minima, which are times two of the block. Codes of two
/// groups share 32 bytes; those of Q5_K have a fifth bit before.
template <int bits>
struct KQuant {
  static constexpr std::int64_t columns = 256, group_columns = 32;
  static constexpr std::int64_t codes_at = bits == 4 ? 16 : 48, bytes = codes_at + 128;
  static constexpr Places scale_places{0, 2};
  static constexpr CodeKind kind = bits == 4 ? CodeKind::int4 : CodeKind::int8;

  /// A code counts `step` from `-least` on.
  struct Group {
    float step, least;
  };
  static Group group_of(Bytes block, int group) {
    const KScales of(block + 4, group);
    return {half_at(block) * of.scale, half_at(block + 2) * of.minimum};
  }
  static int code(Bytes block, int group, int i) {
    const int code = block[codes_at + group / 2 * 32 + i] >> (group % 2 * 4) & 0xF;
    return bits == 4 ? code : code + (block[16 + i] >> group & 1) * 16;
  }
  static void numbers(Bytes block, float* out) {
    for (int group = 0; group < 8; ++group) {
      const auto [step, least] = group_of(block, group);
      for (int i = 0; i < 32; ++i) {
        *out++ = step * static_cast<float>(code(block, group, i)) - least;
      }
    }
  }
  static void codes(Bytes block, std::uint8_t* out) {
    for (int group = 0; group < 8; ++group) {
      const bool is_constant = group_of(block, group).step == 0.0F;
      for (int i = 0; i < 32; ++i) {
        *out++ = is_constant ? 0 : static_cast<std::uint8_t>(code(block, group, i));
      }
    }
  }
  static CodeScale scale(Bytes block, std::int64_t group) {
    const auto [step, least] = group_of(block, static_cast<int>(group));
    return scale_of_steps(step, least);
  }
};

/// 256 codes of 6 bits in groups of 16: 4 bits of each, then 2 bits, the groups' scales, the
/// block's.
struct Q6_K {
  static constexpr std::int64_t columns = 256, bytes = 210, group_columns = 16;
  static constexpr Places scale_places{208, 208};
  static constexpr CodeKind kind = CodeKind::int8;

  static int code(Bytes block, int i) {
    const Bytes low = block, high = block + 128;
    const int half = i / 128, quarter = i % 128 / 32, lane = i % 32;
    const int nibble = low[half * 64 + quarter % 2 * 32 + lane] >> (quarter / 2 * 4) & 0xF;
    return (nibble | (high[half * 32 + lane] >> (2 * quarter) & 3) << 4) - 32;
  }
  static CodeScale scale(Bytes block, std::int64_t group) {
    return {.scale = half_at(block + 208) * static_cast<std::int8_t>(block[192 + group])};
  }
  static void codes(Bytes block, std::uint8_t* out) {
    for (int i = 0; i < columns; ++i) out[i] = static_cast<std::uint8_t>(code(block, i));
  }
  static void numbers(Bytes block, float* out) {
    for (int i = 0; i < columns; ++i) {
      out[i] = scale(block, i / 16).scale * static_cast<float>(code(block, i));
    }
  }
};

/// The stored row for row `row` of the matrix.
std::int64_t stored_row(const StoredTensor& matrix, std::int64_t row) {
  const std::int64_t rows = matrix.interleaved_rows;
  if (rows == 0) return row;
  const std::int64_t in_head = row % rows;
  return row - in_head + in_head % (rows / 2) * 2 + in_head / (rows / 2);
}

Bytes row_of(const StoredTensor& matrix, std::int64_t row) {
  return static_cast<Bytes>(matrix.view.data()) + stored_row(matrix, row) * matrix.view[1];
}

/// Writes `count` columns of a row, from `first` on; whole(block, out) writes all of a block.
template <class T, class Element, class Whole>
void for_columns(Bytes row, std::int64_t first, std::int64_t count, Element* out,
                 const Whole& whole) {
  while (count > 0) {
    const std::int64_t begin = first % T::columns;
    const std::int64_t here = std::min(T::columns - begin, count);
    const Bytes block = row + first / T::columns * T::bytes;
    if (here == T::columns) {
      whole(block, out);
    } else {
      Element all[T::columns];
      whole(block, all);
      std::copy_n(all + begin, here, out);
    }
    first += here, count -= here, out += here;
  }
}

template <class T>
void decode(const StoredTensor& matrix, std::int64_t row, std::int64_t first, std::int64_t count,
            float* out) {
  for_columns<T>(row_of(matrix, row), first, count, out, T::numbers);
}

template <class T>
void codes(const StoredTensor& matrix, std::int64_t row, std::int64_t first, std::int64_t count,
           std::uint8_t* out) {
  for_columns<T>(row_of(matrix, row), first, count, out, T::codes);
}

template <class T>
CodeScale scale(const StoredTensor& matrix, std::int64_t row, std::int64_t group) {
  constexpr std::int64_t groups = T::columns / T::group_columns;
  return T::scale(row_of(matrix, row) + group / groups * T::bytes, group % groups);
}

Shape as_is(const Shape& shape) { return shape; }

template <class T>
std::optional<std::int64_t> find_bad_block(const StoredTensor& matrix) {
  const auto blocks = static_cast<std::int64_t>(matrix.view.bytes()) / T::bytes;
  Bytes block = static_cast<Bytes>(matrix.view.data());
  for (std::int64_t i = 0; i < blocks; ++i, block += T::bytes) {
    for (const std::int64_t place : T::scale_places) {
      if (!std::isfinite(half_at(block + place))) return i;
    }
  }
  return std::nullopt;
}

template <class T>
constexpr bool has_minima = false;
template <int bits>
constexpr bool has_minima<KQuant<bits>> = true;
template <int bits>
constexpr bool has_minima<WithMinimum<bits>> = true;

template <class T>
constexpr GgufType type_of(std::uint32_t number, std::string_view name, WeightCoding coding) {
  GgufType type{.number = number,
                .block_columns = T::columns,
                .block_bytes = T::bytes,
                .format = {.coding = coding,
                           .name = name,
                           .file_type = name,
                           .scales = {},
                           .codes_shape = as_is,
                           .scales_shape = as_is,
                           .decode = decode<T>}};
  if constexpr (T::group_columns == 0) {
    type.dtype = T::dtype;
  } else {
    type.group_columns = T::group_columns;
    type.has_half_scales = T::group_columns == T::columns;
    type.find_bad_block = find_bad_block<T>;
    type.format.kind = T::kind;
    type.format.codes_of = codes<T>;
    type.format.scale_of = scale<T>;
    type.format.has_fractional_zeros = has_minima<T>;
  }
  return type;
}

constexpr std::array types{
    type_of<Plain<float, DType::f32>>(0, "F32", WeightCoding::gguf_f32),
    type_of<Plain<std::uint16_t, DType::f16>>(1, "F16", WeightCoding::gguf_f16),
    type_of<Q4_0>(2, "Q4_0", WeightCoding::gguf_q4_0),
    type_of<WithMinimum<4>>(3, "Q4_1", WeightCoding::gguf_q4_1),
    type_of<Q5_0>(6, "Q5_0", WeightCoding::gguf_q5_0),
    type_of<WithMinimum<5>>(7, "Q5_1", WeightCoding::gguf_q5_1),
    type_of<Q8_0>(8, "Q8_0", WeightCoding::gguf_q8_0),
    type_of<KQuant<4>>(12, "Q4_K", WeightCoding::gguf_q4_k),
    type_of<KQuant<5>>(13, "Q5_K", WeightCoding::gguf_q5_k),
    type_of<Q6_K>(14, "Q6_K", WeightCoding::gguf_q6_k),
    type_of<Plain<BFloat16, DType::bf16>>(30, "BF16", WeightCoding::gguf_bf16),
};

}  // namespace

const GgufType* gguf_type(std::uint32_t number) {
  const auto* const found = std::ranges::find(types, number, &GgufType::number);
  return found == types.end() ? nullptr : found;
}

std::optional<std::int64_t> block_that_is_not_finite(const StoredTensor& matrix) {
  const auto has_its_format = [&](const GgufType& type) { return &type.format == matrix.format; };
  const auto* const found = std::ranges::find_if(types, has_its_format);
  if (found == types.end() || found->find_bad_block == nullptr) return std::nullopt;
  return found->find_bad_block(matrix);
}

}  // namespace troupe
