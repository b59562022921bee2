#pragma once

#include "launcher/cli/check_options.hpp"
#include "launcher/cli/exit_code.hpp"

namespace troupe {

/// `launcher check`: prints what would run, and whether it can. Writes nothing; starts only agents
/// on other hosts, which look at these and end.
ExitCode check_job(const CheckOptions& options);

}  // namespace troupe
