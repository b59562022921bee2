#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/config/cluster_config.hpp"

namespace troupe {

/// The type of a key's value.
enum class ValueType { text, integer, number, boolean, text_list };

/// "text", "an integer", ...: for messages and the reference.
std::string_view to_string(ValueType type);

/// A value in the form of its key's type; the other members are unset. `automatic` means the
/// auto_word of a key that allows it.
struct ConfigValue {
  bool automatic = false;
  std::string text;
  std::int64_t integer = 0;
  double number = 0;
  bool boolean = false;
  std::vector<std::string> list;
};

/// A choice that an earlier version had under another name.
struct RenamedChoice {
  std::string_view from;
  std::string_view to;
};

/// A key and those of its values with which another key has an effect.
struct EffectiveWith {
  std::string_view key = {};  ///< empty: always
  std::vector<std::string_view> values = {};
};

/// One row of the table that drives parsing, validation, printing and the generated reference.
struct KeySpec {
  std::string_view key;  ///< dotted, as in "engine.block_size"
  ValueType type;
  std::string_view default_value;  ///< as the YAML would write it; empty: none
  std::string_view doc;            ///< one line
  std::string_view reference;      ///< a paragraph of Markdown, for docs/configuration.md
  bool allows_auto = false;
  std::string_view auto_word = "auto";  ///< the word for an absent value: auto, or off
  double minimum = std::numeric_limits<double>::lowest();  ///< of integers and numbers
  double maximum = std::numeric_limits<double>::max();
  std::vector<std::string_view> choices = {};  ///< every value there will be; empty: any
  RenamedChoice renamed = {};                  ///< refused with the name that it has now
  /// The values that this version supports, among those the rules above allow; empty: all. Other
  /// valid values are refused with "not in this version".
  std::vector<std::string_view> this_version = {};
  /// Where the key has no effect, a value other than the default is refused.
  EffectiveWith effective_with = {};
  void (*set)(Config&, const ConfigValue&) = nullptr;
  std::string (*get)(const Config&) = nullptr;  ///< for value_of; "auto" whatever auto_word is
};

/// All keys, in the order of the reference, grouped by section.
std::span<const KeySpec> config_schema();

/// The value of a key as written in YAML.
std::string value_of(const KeySpec& spec, const Config& config);

/// Returns the row of a dotted key, or null.
const KeySpec* find_key(std::string_view key);

}  // namespace troupe
