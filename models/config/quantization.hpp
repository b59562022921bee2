#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/config/module_pattern.hpp"
#include "parallel/device/dtype.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

class Fields;

/// How a checkpoint's tensors hold the codes of a matrix [n, k]; weight_format() has a row for
/// each, of GGUF's gguf_type().
enum class WeightCoding : std::uint8_t {
  fp8,            ///< E4M3, a byte each
  int8,           ///< signed bytes
  packed_int4,    ///< compressed-tensors: eight of a row in a word
  packed_int8,    ///< compressed-tensors: four of a row in a word
  gptq_int4,      ///< GPTQ: eight of a column in a word
  gptq_int8,      ///< GPTQ: four of a column in a word
  awq_int4,       ///< AWQ "gemm": eight of neighbouring rows in a word, the even ones first
  mxfp4_packed,   ///< compressed-tensors: two of a row in a byte, a scale for 32
  mxfp4_experts,  ///< GPT-OSS: the same, of all experts of a layer in one tensor
  nvfp4_packed,   ///< compressed-tensors: two of a row in a byte, a scale for 16 and one for all
  nvfp4,          ///< ModelOpt: the same by other names
  gguf_f32,       ///< GGUF: numbers, whose rows are in another order
  gguf_f16,
  gguf_bf16,
  gguf_q8_0,  ///< GGUF: blocks, which hold codes and their scales
  gguf_q4_0,
  gguf_q4_1,
  gguf_q5_0,
  gguf_q5_1,
  gguf_q4_k,
  gguf_q5_k,
  gguf_q6_k,
};

/// How matrices are quantised.
struct WeightScheme {
  WeightCoding coding = WeightCoding::fp8;
  /// So many rows and columns share a scale, counted from the first; 0: all of the matrix.
  std::int64_t group_rows = 1;
  std::int64_t group_columns = 0;
  bool has_zero_points = false;
  bool zeros_less_one = false;  ///< zero points are stored less one, as the first GPTQ files do
  bool is_ordered = false;      ///< a tensor g_idx says which group a column belongs to
  bool operator==(const WeightScheme&) const = default;
};

/// What a checkpoint says of its quantised weights: `quantization_config` of config.json, or a file
/// beside it. A value. Weights are decoded as they are read: schemes for activations are
/// known to be there, and not used.
struct QuantizationConfig {
  /// Matrices of one scheme.
  struct Group {
    std::vector<ModulePattern> targets;
    WeightScheme scheme;
  };

  std::string method;                   ///< the format's name, for messages; empty: none
  std::vector<Group> groups;            ///< the first that has a module among its targets counts
  std::vector<ModulePattern> excluded;  ///< modules that are not quantised
  bool has_activation_scheme = false;   ///< activations would be quantised, too
  bool has_kv_scheme = false;           ///< the KV cache would
  /// Codes of the KV cache, i8 or f8_e4m3, for which the layers may have fixed scales.
  std::optional<DType> kv_codes = {};

  /// The scheme of a module, such as "model.layers.0.mlp.up_proj"; null: it is not quantised.
  const WeightScheme* scheme_of(std::string_view module) const;
  /// What is read how, a line for the log; empty: nothing is quantised.
  std::string describe() const;
};

/// The `quantization_config` of a config.json or of its text_config, whose content is `fields`;
/// nothing is quantised without one. Errors: those of read_quantization.
Result<QuantizationConfig> quantization_of(const Fields& fields);

/// Reads a quantization_config: of the methods fp8 (DeepSeek), compressed-tensors, modelopt, gptq,
/// awq and mxfp4. Errors name `fields` and the key: corrupt_data; unsupported for what this version
/// does not decode, with what it does.
Result<QuantizationConfig> read_quantization(const Fields& fields);

/// Reads what a checkpoint's folder says: config.json, in a model with images also its text_config;
/// else hf_quant_config.json (ModelOpt), quantize_config.json (GPTQ) or quant_config.json (AWQ).
/// Nothing is quantised if there is none of these. Errors: those of read_quantization;
/// corrupt_data for broken JSON.
Result<QuantizationConfig> load_quantization(const std::filesystem::path& folder);

}  // namespace troupe
