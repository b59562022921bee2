#pragma once

#include "launcher/cli/collectives_bench_options.hpp"
#include "launcher/cli/exit_code.hpp"

namespace troupe {

/// `launcher bench collectives`: prints the table on stdout, errors on stderr.
ExitCode run_collectives_bench(const CollectivesBenchOptions& options);

}  // namespace troupe
