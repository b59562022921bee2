#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/text/jinja/interpreter.hpp"
#include "models/text/jinja/value.hpp"

namespace troupe::jinja {

// What the language brings along. All throw Failure on what they cannot work on; an unknown name is
// `unsupported`.

/// `operand | name(arguments)`.
Value apply_filter(Interpreter& interpreter, std::string_view name, const Value& operand,
                   const Arguments& arguments);

/// `operand is name(arguments)`.
bool apply_test(Interpreter& interpreter, std::string_view name, const Value& operand,
                const Arguments& arguments);

/// True if `object.name` is one of Python's methods, known here or not.
bool has_method(const Value& object, std::string_view name);

/// `object.name(arguments)`.
Value call_method(Interpreter& interpreter, const Value& object, std::string_view name,
                  const Arguments& arguments);

/// namespace, range, dict, raise_exception, strftime_now.
std::vector<std::pair<std::string, Value>> builtin_functions();

/// `text` without the characters of `characters` (Python's whitespace if null) at its ends.
std::string strip(std::string_view text, const Value* characters, bool left, bool right);

}  // namespace troupe::jinja
