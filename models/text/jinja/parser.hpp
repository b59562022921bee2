#pragma once

#include <vector>

#include "models/text/jinja/lexer.hpp"
#include "models/text/jinja/syntax.hpp"

namespace troupe::jinja {

/// Returns the syntax tree of a template. Throws Failure with the line: corrupt_data for invalid
/// syntax, unsupported for tags that chat templates do not use (include, extends, ...).
Block parse(std::vector<Token> tokens);

}  // namespace troupe::jinja
