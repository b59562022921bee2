#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "models/config/activation.hpp"
#include "parallel/device/dtype.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Positions divided by `factor` (Chen et al. 2023, position interpolation; rope_type "linear").
struct LinearRopeScaling {
  double factor = 1.0;
  bool operator==(const LinearRopeScaling&) const = default;
};

/// A larger base for positions beyond the original length (dynamic NTK scaling; rope_type
/// "dynamic"). Position p takes the base of a sequence of max(p + 1, original_positions) tokens:
/// within the original length nothing changes, and beyond it this is what transformers computes
/// token by token with a KV cache, however a prompt is split.
struct DynamicRopeScaling {
  double factor = 1.0;
  double original_positions = 0.0;
  bool operator==(const DynamicRopeScaling&) const = default;
};

/// Keeps short wavelengths and stretches long ones by `factor`, at every position (Peng et al.
/// 2023, YaRN; rope_type "yarn"). Dimensions that turn at least `fast_turns` times in the original
/// length are kept, those below `slow_turns` stretched, between them interpolated.
struct YarnRopeScaling {
  double factor = 1.0;
  double original_positions = 0.0;
  double fast_turns = 32.0;
  double slow_turns = 1.0;
  bool whole_dimensions = true;   ///< the interpolated range is widened to whole dimensions
  double table_factor = 1.0;      ///< factor of cosines and sines
  double attention_factor = 1.0;  ///< factor of the softmax scale, in latent attention only
  bool operator==(const YarnRopeScaling&) const = default;
};

/// Llama 3's stretching of long wavelengths (Grattafiori et al. 2024; rope_type "llama3"): those
/// longer than original_positions / low_factor are stretched by `factor`, those shorter than
/// original_positions / high_factor stay, between them the frequencies are interpolated.
struct Llama3RopeScaling {
  double factor = 8.0;
  double low_factor = 1.0;
  double high_factor = 4.0;
  double original_positions = 8192.0;
  bool operator==(const Llama3RopeScaling&) const = default;
};

/// Each angle divided by a factor of its own, one set of factors for models of sequences within the
/// original length and another for longer ones (Ding et al. 2024, LongRoPE; rope_type "longrope").
/// The set is chosen by the longest sequence that the model is loaded for, so that a sequence's
/// keys and queries always have the same one.
struct LongRopeScaling {
  std::vector<double> short_factors;
  std::vector<double> long_factors;
  double original_positions = 0.0;
  double table_factor = 1.0;  ///< factor of cosines and sines
  bool operator==(const LongRopeScaling&) const = default;
};

/// Rotary position embedding: angles are position * theta^(-2i / head_dim) (Su et al. 2021), unless
/// scaled.
struct RopeConfig {
  double theta = 10000.0;
  std::variant<std::monostate, LinearRopeScaling, DynamicRopeScaling, YarnRopeScaling,
               Llama3RopeScaling, LongRopeScaling>
      scaling = {};
  bool operator==(const RopeConfig&) const = default;
};

/// Multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, section 2.1): keys and values are
/// projections of one latent vector per token. The cache holds this vector and one rotated key that
/// all heads share. ModelConfig::kv_heads is then 1, and head_dim that of queries and keys:
/// unrotated_dim + rotated_dim.
struct LatentConfig {
  std::int64_t query_rank = 0;  ///< of the query's own low-rank projection; 0: none
  std::int64_t rank = 0;        ///< elements of the latent vector
  std::int64_t unrotated_dim = 0;
  std::int64_t rotated_dim = 0;
  std::int64_t value_dim = 0;    ///< of each head
  bool interleaved_rope = true;  ///< weights store the two halves of a rotation interleaved
  /// Of a lightning indexer (SparseIndex), which then chooses `index_top_k` keys for each row; 0:
  /// none.
  std::int64_t index_heads = 0;
  std::int64_t index_dim = 0;
  std::int64_t index_top_k = 0;
  bool operator==(const LatentConfig&) const = default;
};

/// How a router's logits become scores.
enum class RouterScoring { softmax, sigmoid };

/// The mixture-of-experts part of a config; absent in dense models.
struct MoeConfig {
  std::int64_t experts = 0;
  std::int64_t top_k = 0;
  std::int64_t intermediate_size = 0;      ///< of one expert
  bool normalize_top_k = false;            ///< the chosen experts' weights are divided by their sum
  std::int64_t sparse_step = 1;            ///< layer i is sparse only if sparse_step divides i + 1
  std::vector<std::int64_t> dense_layers;  ///< these are dense whatever sparse_step says

  RouterScoring scoring = RouterScoring::softmax;
  bool choice_bias = false;  ///< a bias per expert is added to scores for the choice alone
  /// Experts are in `groups` equal groups; a token's are chosen from the `top_groups` groups whose
  /// two best scores have the largest sum (DeepSeek-AI 2024, DeepSeek-V3, section 2.1.2).
  std::int64_t groups = 1;
  std::int64_t top_groups = 1;
  double weight_scale = 1.0;                  ///< factor of the chosen experts' weights
  std::int64_t shared_intermediate_size = 0;  ///< of an MLP that every token also takes; 0: none
  bool gated_shared_expert = false;  ///< its output is multiplied by a sigmoid of the token
  bool logit_bias = false;           ///< the router's projection has a bias
  bool expert_bias = false;          ///< all matrices of experts have biases
  /// Groups are compared by their best score instead of the sum of two.
  bool best_score_groups = false;
  bool operator==(const MoeConfig&) const = default;
};

/// How vectors are normalised.
struct NormConfig {
  enum class Kind : std::uint8_t {
    rms,    ///< Zhang & Sennrich 2019
    layer,  ///< the mean is subtracted, too (Ba et al. 2016, LayerNorm)
  };
  Kind kind = Kind::rms;
  float eps = 1e-6F;
  bool has_bias = false;  ///< LayerNorm's
  bool adds_one = false;  ///< the factor is one more than the checkpoint's weight
  bool operator==(const NormConfig&) const = default;
};

/// How the two blocks of a layer, attention and MLP, are connected.
struct LayerForm {
  bool pre_norms = true;        ///< a block reads the normalised residual stream
  bool post_norms = false;      ///< a block's output is normalised before it is added
  bool parallel = false;        ///< both blocks read the residual stream before the layer
  bool own_mlp_norm = true;     ///< false: parallel blocks share attention's norm
  float residual_scale = 1.0F;  ///< factor of what a block adds
  bool operator==(const LayerForm&) const = default;
};

/// Which RMSNorm queries and keys pass before their rotation.
enum class QueryKeyNorm : std::uint8_t {
  none,
  heads,       ///< each head for itself, with one weight for all heads
  projection,  ///< all heads of a token together
};

/// A Hugging Face config.json of a decoder, in one spelling. A value, read by load_model_config
/// (models/families).
struct ModelConfig {
  /// Its name in `architectures` of config.json, e.g. "Qwen3ForCausalLM".
  std::string architecture;
  std::int64_t hidden_size = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;     ///< query heads
  std::int64_t kv_heads = 0;  ///< divides heads
  std::int64_t head_dim = 0;
  std::int64_t intermediate_size = 0;  ///< of dense MLPs
  std::int64_t vocab_size = 0;
  /// The longest sequence: the file's max_position_embeddings, for rope types that stretch it
  /// (linear, dynamic, yarn) times their factor.
  std::int64_t max_position_embeddings = 0;
  NormConfig norm;
  LayerForm form;
  Activation activation = Activation::silu_gated;
  float embedding_scale = 1.0F;         ///< factor of the embedding's rows
  bool rounds_embedding_scale = false;  ///< to the dtype of activations
  float logit_scale = 1.0F;
  float logit_soft_cap = 0.0F;  ///< logits l become cap * tanh(l / cap); 0: no cap
  bool tie_word_embeddings = false;
  DType dtype = DType::bf16;  ///< of the checkpoint, as stated in config.json
  RopeConfig rope;
  std::optional<RopeConfig> window_rope;  ///< of layers with a window, where it differs
  std::int64_t rotary_dim = 0;            ///< rotated elements of a head; 0: all
  bool interleaved_rope = false;          ///< a rotation's two elements lie side by side
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  double attention_scale = 0.0;       ///< of scores; 0: 1 / sqrt(head_dim)
  float attention_soft_cap = 0.0F;    ///< see AttentionShape::soft_cap
  bool attention_sinks = false;       ///< see AttentionShape::sinks
  bool qkv_bias = false;              ///< the query, key and value projections have biases
  bool output_bias = false;           ///< attention's output projection has a bias
  bool mlp_bias = false;              ///< all projections of dense MLPs have biases
  std::vector<std::int64_t> windows;  ///< of each layer, see window_of; empty: all 0
  std::optional<LatentConfig> latent;
  std::optional<MoeConfig> moe;
  std::vector<std::int32_t> eos_token_ids;  ///< of config.json; generation_config.json has more

  /// True if layer `layer` (from 0) has experts instead of a dense MLP.
  bool is_sparse(std::int64_t layer) const;

  /// The number of positions that layer `layer` attends to, the token's own included; 0: all before
  /// it.
  std::int64_t window_of(std::int64_t layer) const;

  /// The rope of layer `layer`.
  const RopeConfig& rope_of(std::int64_t layer) const {
    return window_rope && window_of(layer) > 0 ? *window_rope : rope;
  }

  /// The number of elements of a query or key head that rope reads, rotated or not.
  std::int64_t rope_width() const { return latent ? latent->rotated_dim : head_dim; }

  /// The number of rotated elements of a query or key head.
  std::int64_t rotated_dim() const { return rotary_dim > 0 ? rotary_dim : rope_width(); }

  bool operator==(const ModelConfig&) const = default;
};

/// Defaults from generation_config.json for fields that a request leaves out (as vLLM's
/// `generation_config: auto`; do_sample is ignored). Absent keys are empty.
struct GenerationDefaults {
  std::vector<std::int32_t> eos_token_ids;
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<std::int64_t> max_new_tokens;  ///< for requests without max_tokens

  /// Reads `folder`/generation_config.json; all empty if there is no such file. Errors as
  /// load_model_config.
  static Result<GenerationDefaults> load(const std::filesystem::path& folder);
};

/// The ids that end an answer: the union of both files' ids, ascending.
std::vector<std::int32_t> eos_token_ids(const ModelConfig& config,
                                        const GenerationDefaults& defaults);

}  // namespace troupe
