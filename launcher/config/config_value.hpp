#pragma once

#include <string>
#include <string_view>

#include "launcher/config/config_schema.hpp"
#include "runtime/base/result.hpp"

namespace YAML {
class Node;
}

namespace troupe {

/// Describes a node's value for messages: `the text "two"`, `the integer 3`, `a list`, `nothing`.
std::string kind_of(const YAML::Node& node);

/// `text` cut to a reasonable length for a message, with control characters made visible.
std::string shortened(std::string_view text);

/// Reads the node in the form of `spec`. Errors: invalid_argument (type, range, choice: expected
/// and found), unsupported (valid, but "not in this version"); messages begin with the key.
Result<ConfigValue> read_value(const KeySpec& spec, const YAML::Node& node);

}  // namespace troupe
