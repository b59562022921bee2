#pragma once

#include <cstdint>
#include <optional>

#include "models/ops/weight_format.hpp"

namespace troupe {

/// A type of GGUF's tensors (ggml/docs/gguf.md, ggml_type). Rows are whole blocks, which hold codes
/// and scales.
struct GgufType {
  std::uint32_t number;  ///< in files
  std::string_view name;
  std::int64_t block_columns, block_bytes;
  WeightCoding coding;
  std::int64_t group_columns = 0;  ///< that share a scale; 0: they are numbers
  bool has_zero_points = false;
  bool has_half_scales = false;  ///< scales are f16
};

/// Null: a type that is not read.
const GgufType* gguf_type(std::uint32_t number);

/// The first block of a matrix, counted through all rows, one of whose own scales is not finite;
/// none: all are. Reads all of them.
std::optional<std::int64_t> block_that_is_not_finite(const StoredTensor& matrix);

/// The format of a matrix of this coding, whose StoredTensor::view is u8 [n, bytes of a row].
/// Numbers are f32, as GGML's reference computes them.
const WeightFormat& gguf_format(WeightCoding coding);

}  // namespace troupe
