#pragma once

#include "launcher/cli/exit_code.hpp"
#include "launcher/cli/weights_bench_options.hpp"

namespace troupe {

/// `launcher bench weights`: prints the table on stdout, errors on stderr.
ExitCode run_weights_bench(const WeightsBenchOptions& options);

}  // namespace troupe
