#pragma once

#include "runtime/troupe/state_command.hpp"

namespace troupe {

/// Does what the command says and prints the result to stdout. Errors say what to do. The value is
/// the exit status: 0, or 1 if a cluster that was to stop still runs.
Result<int> run_state_command(const StateCommand& command);

}  // namespace troupe
