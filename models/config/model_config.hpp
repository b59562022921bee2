#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/device/dtype.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The families of models this version runs.
enum class Architecture { llama, qwen3, qwen3_moe };

/// The name config.json gives it in `architectures`, e.g. "Qwen3ForCausalLM".
std::string_view to_string(Architecture architecture);

/// Llama 3's stretching of long wavelengths (Grattafiori et al. 2024; rope_type "llama3"): those
/// longer than original_positions / low_factor are `factor` times as long, those shorter than
/// original_positions / high_factor stay, between them the frequencies are interpolated.
struct Llama3RopeScaling {
  double factor = 8.0;
  double low_factor = 1.0;
  double high_factor = 4.0;
  double original_positions = 8192.0;
};

/// Rotary position embedding: angles are position * theta^(-2i / head_dim) (Su et al. 2021).
struct RopeConfig {
  double theta = 10000.0;
  std::optional<Llama3RopeScaling> llama3 = {};
};

/// The mixture-of-experts part of a config; absent in dense models.
struct MoeConfig {
  std::int64_t experts = 0;
  std::int64_t top_k = 0;
  std::int64_t intermediate_size = 0;      ///< of one expert
  bool normalize_top_k = false;            ///< the chosen experts' weights are divided by their sum
  std::int64_t sparse_step = 1;            ///< layer i is sparse only if sparse_step divides i + 1
  std::vector<std::int64_t> dense_layers;  ///< these are dense whatever sparse_step says
};

/// What a Hugging Face config.json says of a decoder, in one spelling. A value.
struct ModelConfig {
  Architecture architecture = Architecture::qwen3;
  std::int64_t hidden_size = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;     ///< query heads
  std::int64_t kv_heads = 0;  ///< divides heads
  std::int64_t head_dim = 0;
  std::int64_t intermediate_size = 0;  ///< of dense MLPs
  std::int64_t vocab_size = 0;
  std::int64_t max_position_embeddings = 0;
  float rms_norm_eps = 1e-6F;
  bool tie_word_embeddings = false;
  DType dtype = DType::bf16;  ///< of the checkpoint, as config.json states it
  RopeConfig rope;
  std::optional<MoeConfig> moe;
  std::vector<std::int32_t> eos_token_ids;  ///< of config.json; generation_config.json has more

  /// Reads `folder`/config.json in the spelling of transformers 4 (rope_theta, rope_scaling,
  /// torch_dtype, num_experts) or 5 (rope_parameters, dtype, num_local_experts). Errors name the
  /// file: not_found; corrupt_data with line and column for broken JSON and with the key for one
  /// that is missing, of the wrong type or out of range; unsupported for architectures (the message
  /// lists the known ones) and for features that this version does not compute.
  static Result<ModelConfig> load(const std::filesystem::path& folder);

  /// Whether layer `layer` (from 0) has experts in place of a dense MLP.
  bool is_sparse(std::int64_t layer) const;
};

/// What generation_config.json says to do where a request says nothing (as vLLM's
/// `generation_config: auto`; do_sample is ignored). Absent keys are empty.
struct GenerationDefaults {
  std::vector<std::int32_t> eos_token_ids;
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;

  /// Reads `folder`/generation_config.json; all empty if there is no such file. Errors as
  /// ModelConfig::load.
  static Result<GenerationDefaults> load(const std::filesystem::path& folder);
};

/// The ids that end an answer: those of both files, ascending, each once.
std::vector<std::int32_t> eos_token_ids(const ModelConfig& config,
                                        const GenerationDefaults& defaults);

}  // namespace troupe
