#pragma once

#include <string>
#include <utility>

#include <fmt/format.h>

#include "runtime/base/result.hpp"

namespace troupe::jinja {

/// An error in parsing or running a template. Thrown inside this folder only, because a tree walk
/// with a Result at every node would hide the language; Template turns it into an Error.
struct Failure {
  ErrorCode code;
  std::string message;
  int line = 0;  // in the template; 0: the interpreter's current line
};

/// A failure because of a template's values: `throw invalid("cannot add {}", type)`.
template <class... Args>
Failure invalid(fmt::format_string<Args...> format, Args&&... args) {
  return {ErrorCode::invalid_argument, fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace troupe::jinja
