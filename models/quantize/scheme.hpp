#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

namespace troupe {

/// The codes that a matrix of weights is stored as.
enum class QuantizationScheme : std::uint8_t {
  fp8,    ///< E4M3, a scale for each row; activations dynamic, a scale for each token
  int8,   ///< symmetric, a scale for each row; activations dynamic, a scale for each token
  w4a16,  ///< symmetric int4, a scale for each group of columns of a row
  mxfp4,  ///< E2M1, a power of two for each 32 columns of a row
  nvfp4,  ///< E2M1, a scale in E4M3 for each 16 columns of a row, and one in f32 for all of them
};

/// True for codes of 4 bits, of which each group of columns of a row has a scale.
constexpr bool is_grouped(QuantizationScheme scheme) {
  using enum QuantizationScheme;
  return scheme == w4a16 || scheme == mxfp4 || scheme == nvfp4;
}

/// True if the scales of groups are divided by one number of the whole matrix.
constexpr bool has_tensor_scale(QuantizationScheme scheme) {
  return scheme == QuantizationScheme::nvfp4;
}

/// Which weights pruning sets to 0; the others stay as they are, and so does how they are stored.
enum class SparsityStructure : std::uint8_t {
  two_of_four,  ///< two of each four columns of a row
  rows,         ///< whole channels of MLPs
};

/// The codes of a KV cache that a checkpoint gets fixed scales for; its weights stay as they are.
enum class KvCacheScheme : std::uint8_t {
  fp8,  ///< E4M3: a scale of a layer's keys and one of its values
};

/// How a checkpoint is compressed: its weights become codes, some become 0, or its KV cache gets
/// scales.
using CompressionScheme = std::variant<QuantizationScheme, SparsityStructure, KvCacheScheme>;

/// True for what sets weights to 0.
constexpr bool is_pruning(const CompressionScheme& scheme) {
  return std::holds_alternative<SparsityStructure>(scheme);
}
/// True for what leaves weights as they are and looks at keys and values.
constexpr bool is_about_kv(const CompressionScheme& scheme) {
  return std::holds_alternative<KvCacheScheme>(scheme);
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

/// Names a scheme or method as the command line and reports do.
std::string_view to_string(QuantizationScheme scheme);
std::string_view to_string(SparsityStructure structure);
std::string_view to_string(KvCacheScheme scheme);
std::string_view to_string(const CompressionScheme& scheme);
std::string_view to_string(QuantizationMethod method);

/// Columns that share a scale in MXFP4 (OCP Microscaling Formats Specification 1.0, 2023).
inline constexpr std::int64_t mxfp4_group_columns = 32;

}  // namespace troupe
