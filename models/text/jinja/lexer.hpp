#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace troupe::jinja {

struct Token {
  enum class Kind {
    text,         ///< text outside all tags, after whitespace control
    print_begin,  ///< {{
    print_end,    ///< }}
    block_begin,  ///< {%
    block_end,    ///< %}
    name,
    string,   ///< `text` is its value
    integer,  ///< `text` is its digits
    number,   ///< a floating-point literal
    symbol,   ///< an operator or bracket
    end,      ///< end of the template
  };
  Kind kind;
  std::string text;
  int line;
};

/// Splits a template into tokens with Jinja's options trim_blocks and lstrip_blocks on. Throws
/// Failure (corrupt_data) at an invalid or unterminated token.
std::vector<Token> tokenize(std::string_view source);

}  // namespace troupe::jinja
