#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "models/text/jinja/value.hpp"

namespace troupe::jinja {

/// How one value is formatted: the part after the colon of "{:*^+12,.2f}", and the equivalent of
/// "%-5.1f".
struct FormatSpec {
  char32_t fill = U' ';
  char align = '\0';  ///< '<', '>', '^', '=' (between sign and digits), or the type's own
  char sign = '-';    ///< '+', '-' or ' '
  bool alternate = false;
  char grouping = '\0';  ///< ',' or '_'
  std::int64_t width = 0;
  std::optional<std::int64_t> precision;
  char type = '\0';

  /// Parses `text` (Python's "Format Specification Mini-Language").
  static FormatSpec parse(std::string_view text);
};

/// Python's format(value, spec). Throws for types other than strings and numbers unless spec is
/// empty.
std::string format_value(const Value& value, const FormatSpec& spec);

/// A number formatted by `spec`, including sign and width.
std::string format_number(const Value& value, const FormatSpec& spec);

/// `text` cut to the precision and filled to the width.
std::string format_text(std::string_view text, const FormatSpec& spec, char own_align);

}  // namespace troupe::jinja
