#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "models/config/model_config.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

class Fields;

/// Which biases attention's projections have.
enum class AttentionBias {
  none,        ///< none; bias_key is not looked at
  as_stated,   ///< all four projections, if bias_key is true
  stated_qkv,  ///< those of queries, keys and values, if bias_key is true
  always_qkv,  ///< those of queries, keys and values, whatever the file says
  refused,     ///< none; a file in which bias_key is true is refused
};

/// How windows are read: their size from sliding_window, their layers from layer_types.
struct WindowRules {
  std::int64_t absent = 0;                ///< the window where the key is absent; 0: none
  bool needs_use_sliding_window = false;  ///< windows count only if use_sliding_window is true
  /// Without layer_types, layers from this on have a window where max_window_layers is absent;
  /// empty: all layers have one, and max_window_layers is not looked at.
  std::optional<std::int64_t> max_window_layers = {};
  /// Without layer_types, every sliding_window_pattern-th layer has no window, where the key is
  /// absent every `pattern`-th; 0: sliding_window_pattern is not looked at.
  std::int64_t pattern = 0;
  /// The rope's base in layers with a window where rope_local_base_freq is absent; 0: all layers
  /// have one rope, and the key is not looked at.
  double rope_theta = 0.0;
};

/// How the config.json of one architecture is read, as far as architectures differ. Defaults for
/// absent keys are those of transformers. read_config reads the keys that all have in common.
struct ConfigRules {
  using Read = Result<void> (*)(const Fields& fields, ModelConfig& config);

  std::string_view architecture;      ///< in `architectures`, e.g. "Qwen3ForCausalLM"
  std::string_view model_type;        ///< in `model_type`, where `architectures` is absent
  std::int64_t default_heads = 0;     ///< where the key is absent; 0: it must be there
  std::int64_t default_kv_heads = 0;  ///< where the key is absent, not null; 0: as many as heads
  std::int64_t default_vocab = 0;     ///< where the key is absent; 0: it must be there
  std::int64_t default_head_dim = 0;  ///< where the key is absent; 0: hidden_size / heads
  AttentionBias attention_bias = AttentionBias::none;
  std::string_view bias_key = "attention_bias";  ///< how the file calls it
  bool biased_by_default = false;                ///< where that key is absent
  bool reads_mlp_bias = false;
  bool quadruple_mlp = false;  ///< intermediate_size is 4 hidden_size where the key is absent
  NormConfig norm = {};        ///< with the eps where its key is absent
  LayerForm form = {};
  std::string_view default_activation = "silu";
  bool gated_mlp = true;
  bool tied_by_default = false;  ///< the head is the embedding where tie_word_embeddings is absent
  /// The rotated part of a head where partial_rotary_factor is absent; empty: all of it, and other
  /// factors are refused.
  std::optional<double> rotary_part = {};
  double rope_theta = 10000.0;  ///< where the key is absent
  /// The JSON object of rope_scaling where it is absent, not null; empty: none.
  std::string_view default_rope_scaling = {};
  /// LongRoPE's original length where original_max_position_embeddings is absent; 0: that of
  /// max_position_embeddings.
  std::int64_t original_positions = 0;
  /// max_position_embeddings is the longest sequence, whatever the rope's factor.
  bool positions_are_stretched = false;
  bool interleaved_rope = false;
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  std::int64_t positions = 0;  ///< where max_position_embeddings is absent; 0: it must be there
  std::optional<WindowRules> windows = {};  ///< empty: sliding_window is not looked at
  /// What layer_types calls layers without a window.
  std::string_view full_layer_type = "full_attention";
  /// The object in the file that describes the model; empty: the file itself.
  std::string_view nested_in = {};
  /// Sets kv_heads and head_dim (hidden_size, layers and heads are set); null: grouped-query
  /// attention's.
  Read read_heads = nullptr;
  /// Reads what this architecture alone has, such as its experts, when all else of `config` is set;
  /// refuses what its layers do not compute. Null: nothing.
  Read read_own = nullptr;
};

}  // namespace troupe
