#pragma once

#include <cstdint>
#include <string_view>

namespace troupe {

/// The codes that a matrix of weights is stored as, or what is left of it.
enum class QuantizationScheme : std::uint8_t {
  fp8,          ///< E4M3, a scale for each row; activations dynamic, a scale for each token
  int8,         ///< symmetric, a scale for each row; activations dynamic, a scale for each token
  w4a16,        ///< symmetric int4, a scale for each group of columns of a row
  mxfp4,        ///< E2M1, a power of two for each 32 columns of a row
  sparse_24,    ///< no codes: two of each four columns of a row are 0
  sparse_rows,  ///< no codes: whole channels of MLPs are 0
  kv_fp8,       ///< weights stay as they are: scales of a KV cache in E4M3, one of a layer's keys
                ///< and one of its values
};

/// True for those that set weights to 0 and leave the others as they are.
constexpr bool is_pruning(QuantizationScheme scheme) {
  return scheme == QuantizationScheme::sparse_24 || scheme == QuantizationScheme::sparse_rows;
}

/// How the codes, or the zeros, are chosen.
enum class QuantizationMethod : std::uint8_t {
  rtn,          ///< each weight is rounded to the nearest number
  gptq,         ///< Frantar et al. 2022: later columns make up for the errors of earlier ones
  awq,          ///< Lin et al. 2023: channels with large activations are scaled up before rounding
  smoothquant,  ///< Xiao et al. 2022: the range of activations moves into the weights
  magnitude,    ///< pruning: the smallest weights
  wanda,        ///< pruning, Sun et al. 2023: the smallest, times the size of their inputs
};

std::string_view to_string(QuantizationScheme scheme);
std::string_view to_string(QuantizationMethod method);

/// Columns that share a scale in MXFP4 (OCP Microscaling Formats Specification 1.0, 2023).
inline constexpr std::int64_t mxfp4_group_columns = 32;

}  // namespace troupe
