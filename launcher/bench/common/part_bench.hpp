#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "launcher/cli/exit_code.hpp"
#include "launcher/cli/part_bench_options.hpp"
#include "launcher/job/job_plan.hpp"
#include "runtime/base/result.hpp"

// Shared by the benches of one part of the engine: `launcher bench ops`, `collectives` and
// `weights`.

namespace troupe {

/// Prints `error` on stderr; returns `code`.
ExitCode tell(const Error& error, ExitCode code);

/// Plans the job of --config and --set. Errors: those of load_config and plan_job.
Result<JobPlan> plan_part_bench(const PartBenchOptions& options);

/// Prints `table`, and writes `figures` to the file of --json if there is one. Reports failures.
ExitCode show_figures(const std::string& table, const nlohmann::ordered_json& figures,
                      const PartBenchOptions& options);

}  // namespace troupe
