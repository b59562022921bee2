#pragma once

#include <span>
#include <string>

#include "launcher/cli/exit_code.hpp"

namespace troupe {

/// `launcher bench weights`: its arguments are those of parse_weights_bench_options.
ExitCode run_weights_bench(std::span<const std::string> arguments);

}  // namespace troupe
