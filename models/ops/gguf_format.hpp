#pragma once

#include <cstdint>
#include <optional>

#include "models/ops/weight_format.hpp"

namespace troupe {

/// A type of GGUF's tensors (ggml/docs/gguf.md, ggml_type). Rows are whole blocks, which hold codes
/// and scales, or numbers.
struct GgufType {
  std::uint32_t number;  ///< in files
  std::int64_t block_columns, block_bytes;
  std::optional<DType> dtype = {};  ///< of numbers
  std::int64_t group_columns = 0;   ///< that share a scale
  bool has_half_scales = false;     ///< scales are f16
  /// The first block of a matrix, counted through all rows, one of whose own scales is not finite.
  std::optional<std::int64_t> (*find_bad_block)(const StoredTensor& matrix) = nullptr;
  /// Its functions take matrices whose StoredTensor::view is u8 [n, bytes of a row]. Numbers are
  /// f32, as GGML's reference computes them.
  WeightFormat format;
};

/// Null: a type that is not read.
const GgufType* gguf_type(std::uint32_t number);

/// The first block of a matrix with scales that are not finite; none if all are, or if its format
/// is not GGUF's. Reads all of them.
std::optional<std::int64_t> block_that_is_not_finite(const StoredTensor& matrix);

}  // namespace troupe
