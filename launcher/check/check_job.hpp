#pragma once

#include "launcher/cli/check_options.hpp"
#include "launcher/cli/exit_code.hpp"

namespace troupe {

/// `launcher check`: prints what would run, and whether it can. Starts and writes nothing.
ExitCode check_job(const CheckOptions& options);

}  // namespace troupe
