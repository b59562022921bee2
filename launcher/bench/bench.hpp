#pragma once

#include "launcher/cli/bench_options.hpp"
#include "launcher/cli/exit_code.hpp"

namespace troupe {

/// `launcher bench throughput`, `latency`, `startup`, `sweep` or `faults`: starts its own engines
/// on the topology of `options`, prints the figures on stdout and writes them to the JSON file if
/// requested. Logs of the processes are in a temporary folder, which is kept and named when an
/// engine fails. Returns when all processes are gone.
ExitCode run_bench(const BenchOptions& options);

}  // namespace troupe
