#pragma once

#include <span>
#include <string>
#include <variant>

#include "runtime/troupe/state_command.hpp"

namespace troupe {

/// Reads the arguments of the program `troupe`, without its name. A text is help, to be printed.
/// Errors: invalid_argument says what to do.
Result<std::variant<StateCommand, std::string>> parse_troupe_arguments(
    std::span<const std::string> arguments);

}  // namespace troupe
