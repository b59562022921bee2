#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models/text/jinja/value.hpp"

namespace troupe::jinja {

// Values as text, in Python's form.

/// repr() of a float.
std::string float_text(double value);

/// Formatting options of json.dumps.
struct JsonStyle {
  std::optional<std::string> indent;  ///< for one level; none: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ensure_ascii = false;
};

/// json.dumps(value). Throws for what JSON cannot hold.
std::string to_json(const Value& value, const JsonStyle& style);

/// `text` with &, <, >, ' and " as HTML entities.
std::string escape_html(std::string_view text);

}  // namespace troupe::jinja
