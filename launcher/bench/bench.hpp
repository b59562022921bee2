#pragma once

#include "launcher/cli/command_line.hpp"
#include "launcher/cli/exit_code.hpp"
#include "launcher/config/cluster_config.hpp"
#include "launcher/job/stop_signals.hpp"

namespace troupe {

/// Runs `line.bench` on the topology of `config`: starts engines of its own, prints the figures on
/// stdout and writes them to the JSON file if one is asked for. Logs of the processes lie in a
/// temporary folder, which is kept and named when an engine fails. Returns when all processes are
/// gone.
ExitCode run_bench(const Config& config, const CommandLine& line, StopSignals& signals);

}  // namespace troupe
