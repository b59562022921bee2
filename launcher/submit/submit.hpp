#pragma once

#include "launcher/cli/exit_code.hpp"
#include "launcher/cli/submit_options.hpp"

namespace troupe {

/// `launcher submit`: writes the script and hands it to sbatch; prints the job's id and where
/// script and log are. Mistakes go to stderr. Refused: what the YAML's checks refuse, hosts in
/// cluster.hosts, a model or input that is not there, an output that cannot be made, no sbatch, and
/// what sbatch refuses.
ExitCode run_submit(const SubmitOptions& options);

}  // namespace troupe
