#pragma once

#include "launcher/cli/exit_code.hpp"
#include "launcher/cli/run_options.hpp"
#include "launcher/job/job_plan.hpp"
#include "launcher/job/stop_signals.hpp"

namespace troupe {

/// Runs a batch from its input file to its output file on its own engine, with progress and the
/// final message on stderr. Returns when all processes of the job are gone.
ExitCode run_batch_job(const JobPlan& plan, const RunOptions& options, StopSignals& signals);

}  // namespace troupe
