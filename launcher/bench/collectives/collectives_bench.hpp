#pragma once

#include <span>
#include <string>

#include "launcher/cli/exit_code.hpp"

namespace troupe {

/// `launcher bench collectives`, given what follows these words: prints the table on stdout,
/// mistakes and errors on stderr.
ExitCode run_collectives_bench(std::span<const std::string> arguments);

}  // namespace troupe
