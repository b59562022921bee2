#pragma once

#include <string>
#include <string_view>

#include "models/text/jinja/interpreter.hpp"
#include "models/text/jinja/value.hpp"

namespace troupe::jinja {

// Python's two ways to format strings. They throw Failure where format and values do not fit, and
// `unsupported` for the few forms that are not supported here.

/// `format % values`, printf-style; `values` is a tuple, a dict or a single value.
Value format_printf(Interpreter& interpreter, const Value& format, const Value& values);

/// `format.format(*positional, **named)`.
Value format_braces(Interpreter& interpreter, std::string_view format, const Arguments& values);

}  // namespace troupe::jinja
