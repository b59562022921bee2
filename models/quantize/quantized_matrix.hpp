#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/checkpoint/shard_writer.hpp"
#include "models/ops/cpu/thread_pool.hpp"
#include "models/quantize/code_grid.hpp"
#include "parallel/device/tensor.hpp"

namespace troupe {

/// A matrix [rows, columns] in codes: number = code * scale of its group of columns.
struct QuantizedMatrix {
  CodeGrid grid{QuantizationScheme::int8, DType::bf16};
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t group = 0;           ///< columns that share a scale; divides `columns`
  std::vector<std::uint8_t> codes;  ///< [rows, columns], see CodeGrid
  std::vector<float> scales;        ///< [rows, columns / group], see CodeGrid::scale_of

  QuantizedMatrix() = default;
  QuantizedMatrix(const CodeGrid& numbers, const Shape& shape, std::int64_t group_columns);

  std::int64_t groups() const { return columns / group; }
  float number(std::int64_t row, std::int64_t column) const {
    return grid.number_of(codes[static_cast<std::size_t>(row * columns + column)],
                          scales[static_cast<std::size_t>(row * groups() + column / group)]);
  }
  /// All numbers: [rows, columns] f32.
  HostTensor numbers(ThreadPool& threads) const;
};

/// The tensors that hold a matrix of that name, "....weight", in compressed-tensors' formats.
std::vector<TensorSpec> encoded_specs(std::string_view name, const Shape& shape,
                                      const CodeGrid& grid, std::int64_t group);
/// Their bytes, in the same order.
std::vector<std::vector<std::byte>> encode(const QuantizedMatrix& matrix);

/// Rounds each weight of `matrix` [rows, columns] f32 to the nearest number, with the scale of its
/// group of columns. Paper: none; the baseline of Frantar et al. 2022, section 5.
QuantizedMatrix round_to_nearest(const Tensor& matrix, const CodeGrid& grid, std::int64_t group,
                                 ThreadPool& threads);

}  // namespace troupe
