#include "models/quantize/quantized_matrix.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

#include "models/ops/fp8_rows.hpp"
#include "models/ops/weight_format.hpp"

namespace troupe {
namespace {

constexpr std::int64_t codes_in_word = 8;

/// The format that readers know the scheme's codes by.
const WeightFormat& format_of(QuantizationScheme scheme) {
  switch (scheme) {
    case QuantizationScheme::fp8:
      return weight_format(WeightCoding::fp8);
    case QuantizationScheme::int8:
      return weight_format(WeightCoding::int8);
    case QuantizationScheme::w4a16:
      return weight_format(WeightCoding::packed_int4);
    case QuantizationScheme::mxfp4:
      return weight_format(WeightCoding::mxfp4_packed);
    case QuantizationScheme::nvfp4:
      return weight_format(WeightCoding::nvfp4_packed);
  }
  return weight_format(WeightCoding::int8);
}

std::string_view type_name(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
    case DType::u8:
      return "U8";
    case DType::f8_e4m3:
      return "F8_E4M3";
    default:
      return "F32";
  }
}

TensorSpec make_spec(std::string name, std::string_view type, const Shape& shape,
                     std::size_t element_bytes) {
  const auto bytes = static_cast<std::uint64_t>(shape.elements()) * element_bytes;
  return {std::move(name), std::string(type), {shape[0], shape[1]}, bytes};
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
      case DType::f8_e4m3:
        append(bytes, float_to_e4m3(scale * matrix.grid.tensor_divisor()));
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
  const WeightFormat& format = format_of(grid.scheme());
  const bool is_in_words = grid.scheme() == QuantizationScheme::w4a16;
  const DType scale = grid.scale_dtype();
  std::vector<TensorSpec> specs = {
      make_spec(fmt::format("{}{}", name, format.codes), format.file_type,
                format.codes_shape(shape), is_in_words ? 4 : 1),
      make_spec(fmt::format("{}{}", name, format.scales[0]), type_name(scale),
                format.scales_shape({shape[0], shape[1] / group}), size_of(scale))};
  // Libraries ask for the shape before packing; WeightFormat's readers know it.
  if (is_in_words) specs.push_back({fmt::format("{}_shape", name), "I64", {2}, 16});
  if (has_tensor_scale(grid.scheme())) {
    specs.push_back(
        {fmt::format("{}{}", name, format.tensor_scale), "F32", {1}, size_of(DType::f32)});
  }
  return specs;
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
    case QuantizationScheme::nvfp4: {
      std::vector<std::byte> divisor;
      append(divisor, matrix.grid.tensor_divisor());
      return {pack_bytes(matrix), std::move(scales), std::move(divisor)};
    }
    case QuantizationScheme::fp8:
    case QuantizationScheme::int8:
      break;
  }
  std::vector<std::byte> codes(matrix.codes.size());
  std::memcpy(codes.data(), matrix.codes.data(), codes.size());
  return {std::move(codes), std::move(scales)};
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
