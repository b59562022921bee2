#pragma once

#include <vector>

#include "models/text/jinja/lexer.hpp"
#include "models/text/jinja/syntax.hpp"

namespace troupe::jinja {

/// The tree of a template. Throws Failure with the line: corrupt_data for what is no template,
/// unsupported for tags that chat templates do not use (include, extends, ...).
Block parse(std::vector<Token> tokens);

}  // namespace troupe::jinja
