#include "models/quantize/quantized_matrix.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

namespace troupe {
namespace {

constexpr std::int64_t codes_in_word = 8;

std::string_view type_name(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
    case DType::u8:
      return "U8";
    default:
      return "F32";
  }
}

TensorSpec make_spec(std::string name, std::string_view type, std::vector<std::int64_t> extents,
                     std::size_t element_bytes) {
  std::uint64_t bytes = element_bytes;
  for (const std::int64_t extent : extents) bytes *= static_cast<std::uint64_t>(extent);
  return {std::move(name), std::string(type), std::move(extents), bytes};
}

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
  const auto* const begin = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), begin, begin + sizeof value);
}

std::vector<std::byte> encode_scales(const QuantizedMatrix& matrix) {
  std::vector<std::byte> bytes;
  for (const float scale : matrix.scales) {
    switch (matrix.grid.scale_dtype()) {
      case DType::bf16:
        append(bytes, to_bfloat16(scale).bits);
        break;
      case DType::f16:
        append(bytes, float_to_half(scale));
        break;
      case DType::u8:
        append(bytes, static_cast<std::uint8_t>(std::ilogb(scale) + 127));
        break;
      default:
        append(bytes, scale);
    }
  }
  return bytes;
}

/// Eight codes of a row in a word, the first in the lowest bits.
std::vector<std::byte> pack_words(const QuantizedMatrix& matrix) {
  std::vector<std::byte> bytes;
  bytes.reserve(matrix.codes.size() / 2);
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    const std::uint8_t* const codes = matrix.codes.data() + row * matrix.columns;
    for (std::int64_t first = 0; first < matrix.columns; first += codes_in_word) {
      std::uint32_t word = 0;
      for (std::int64_t i = 0; i < codes_in_word && first + i < matrix.columns; ++i) {
        word |= static_cast<std::uint32_t>(codes[first + i]) << (4 * i);
      }
      append(bytes, word);
    }
  }
  return bytes;
}

/// Two codes of a row in a byte, the first in the lower half.
std::vector<std::byte> pack_bytes(const QuantizedMatrix& matrix) {
  std::vector<std::byte> bytes(matrix.codes.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(matrix.codes[2 * i] | matrix.codes[2 * i + 1] << 4);
  }
  return bytes;
}

}  // namespace

QuantizedMatrix::QuantizedMatrix(const CodeGrid& numbers, const Shape& shape,
                                 std::int64_t group_columns)
    : grid(numbers), rows(shape[0]), columns(shape[1]), group(group_columns) {
  codes.resize(static_cast<std::size_t>(rows * columns));
  scales.resize(static_cast<std::size_t>(rows * groups()));
}

HostTensor QuantizedMatrix::numbers(ThreadPool& threads) const {
  HostTensor all(DType::f32, {rows, columns});
  threads.run([&](int member) {
    const Range range = split_evenly(rows, member, threads.size());
    for (std::int64_t row = range.begin; row < range.end; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        all->as<float>()[row * columns + column] = number(row, column);
      }
    }
  });
  return all;
}

std::vector<TensorSpec> encoded_specs(std::string_view name, const Shape& shape,
                                      const CodeGrid& grid, std::int64_t group) {
  const std::string base(name);
  const std::int64_t n = shape[0], k = shape[1];
  const TensorSpec scales = make_spec(base + "_scale", type_name(grid.scale_dtype()),
                                      {n, k / group}, size_of(grid.scale_dtype()));
  switch (grid.scheme()) {
    case QuantizationScheme::fp8:
      return {make_spec(base, "F8_E4M3", {n, k}, 1), scales};
    case QuantizationScheme::int8:
      return {make_spec(base, "I8", {n, k}, 1), scales};
    case QuantizationScheme::w4a16:
      return {make_spec(base + "_packed", "I32", {n, (k + codes_in_word - 1) / codes_in_word}, 4),
              scales, make_spec(base + "_shape", "I64", {2}, 8)};
    case QuantizationScheme::mxfp4:
      return {make_spec(base + "_packed", "U8", {n, k / 2}, 1), scales};
  }
  return {};
}

std::vector<std::vector<std::byte>> encode(const QuantizedMatrix& matrix) {
  std::vector<std::byte> scales = encode_scales(matrix);
  switch (matrix.grid.scheme()) {
    case QuantizationScheme::w4a16: {
      std::vector<std::byte> shape;
      append(shape, matrix.rows);
      append(shape, matrix.columns);
      return {pack_words(matrix), std::move(scales), std::move(shape)};
    }
    case QuantizationScheme::mxfp4:
      return {pack_bytes(matrix), std::move(scales)};
    default: {
      std::vector<std::byte> codes(matrix.codes.size());
      std::memcpy(codes.data(), matrix.codes.data(), codes.size());
      return {std::move(codes), std::move(scales)};
    }
  }
}

QuantizedMatrix round_to_nearest(const Tensor& matrix, const CodeGrid& grid, std::int64_t group,
                                 ThreadPool& threads) {
  QuantizedMatrix made(grid, matrix.shape(), group);
  threads.run([&](int member) {
    const Range range = split_evenly(made.rows, member, threads.size());
    for (std::int64_t row = range.begin; row < range.end; ++row) {
      for (std::int64_t g = 0; g < made.groups(); ++g) {
        const std::int64_t first = row * made.columns + g * group;
        const std::span weights(matrix.as<float>() + first, static_cast<std::size_t>(group));
        const float scale = grid.scale_of(weights);
        made.scales[static_cast<std::size_t>(row * made.groups() + g)] = scale;
        for (std::int64_t i = 0; i < group; ++i) {
          made.codes[static_cast<std::size_t>(first + i)] =
              grid.code_of(weights[static_cast<std::size_t>(i)], scale);
        }
      }
    }
  });
  return made;
}

}  // namespace troupe
