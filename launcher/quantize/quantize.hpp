#pragma once

#include "launcher/cli/exit_code.hpp"
#include "launcher/cli/quantize_options.hpp"

namespace troupe {

/// Makes the checkpoint, tells of it on stderr, and prints a summary.
ExitCode run_quantize(const QuantizeOptions& options);

}  // namespace troupe
