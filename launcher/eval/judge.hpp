#pragma once

#include "launcher/cli/eval_options.hpp"
#include "launcher/cli/exit_code.hpp"

namespace troupe {

/// `launcher eval`: judges one model, or two one after the other, each on an engine of its own,
/// with progress on stderr and the figures on stdout. Returns when all processes are gone.
ExitCode run_eval(const EvalOptions& options);

}  // namespace troupe
