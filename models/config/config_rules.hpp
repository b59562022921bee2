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
  none,        ///< none; attention_bias is not looked at
  as_stated,   ///< all four projections, if attention_bias is true
  always_qkv,  ///< those of queries, keys and values, whatever the file says
  refused,     ///< none; a file that wants them is refused
};

/// How windows are read: their size from sliding_window, their layers from layer_types.
struct WindowRules {
  std::int64_t absent = 0;                ///< the window where the key is absent; 0: none
  bool needs_use_sliding_window = false;  ///< windows count only if use_sliding_window is true
  /// Without layer_types, layers from this on have a window where max_window_layers is absent;
  /// empty: all layers have one, and max_window_layers is not looked at.
  std::optional<std::int64_t> max_window_layers;
};

/// How the config.json of one architecture is read, as far as architectures differ. Defaults for
/// absent keys are those of transformers. read_config reads the keys that all have in common.
struct ConfigRules {
  using Read = Result<void> (*)(const Fields& fields, ModelConfig& config);

  std::string_view architecture;      ///< in `architectures`, e.g. "Qwen3ForCausalLM"
  std::string_view model_type;        ///< in `model_type`, where `architectures` is absent
  std::int64_t default_head_dim = 0;  ///< where the key is absent; 0: hidden_size / heads
  AttentionBias attention_bias = AttentionBias::none;
  bool reads_mlp_bias = false;
  std::optional<WindowRules> windows = {};  ///< empty: sliding_window is not looked at
  /// Sets kv_heads and head_dim (hidden_size, layers and heads are set); null: grouped-query
  /// attention's.
  Read read_heads = nullptr;
  /// Reads what this architecture alone has, such as its experts, when all else of `config` is set;
  /// refuses what its layers do not compute. Null: nothing.
  Read read_own = nullptr;
};

}  // namespace troupe
