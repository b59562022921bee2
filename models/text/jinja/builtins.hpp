#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/text/jinja/interpreter.hpp"
#include "models/text/jinja/value.hpp"

namespace troupe::jinja {

// The built-ins of the language. All throw Failure on operands they do not support; an unknown name
// is `unsupported`.

/// `operand | name(arguments)`.
Value apply_filter(Interpreter& interpreter, std::string_view name, const Value& operand,
                   const Arguments& arguments);
bool is_filter(std::string_view name);

/// `operand is name(arguments)`.
bool apply_test(Interpreter& interpreter, std::string_view name, const Value& operand,
                const Arguments& arguments);
bool is_test(std::string_view name);

/// True if `object.name` is one of Python's methods, supported here or not.
bool has_method(const Value& object, std::string_view name);

/// True if the method changes `object`; Jinja's sandbox hides those.
bool would_change(const Value& object, std::string_view name);

/// `object.name(arguments)`.
Value call_method(Interpreter& interpreter, const Value& object, std::string_view name,
                  const Arguments& arguments);

/// namespace, range, dict, joiner, raise_exception, strftime_now.
std::vector<std::pair<std::string, Value>> builtin_functions();

}  // namespace troupe::jinja
