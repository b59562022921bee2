#pragma once

#include "launcher/cli/exit_code.hpp"
#include "launcher/cli/ops_bench_options.hpp"

namespace troupe {

/// `launcher bench ops`: prints the table on stdout, errors on stderr.
ExitCode run_ops_bench(const OpsBenchOptions& options);

}  // namespace troupe
