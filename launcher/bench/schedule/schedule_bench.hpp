#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "actors/simulation/schedule_totals.hpp"
#include "launcher/cli/exit_code.hpp"
#include "launcher/cli/schedule_options.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// One trace under several policies.
struct ScheduleComparison {
  struct Row {
    std::string policy;
    ScheduleTotals totals;
  };
  std::vector<Row> rows;  ///< in the order requested
  std::size_t requests = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;
  double last_arrival_s = 0.0;
};

/// Draws or reads the trace and simulates it under each policy. Errors: those of
/// `read_lengths_csv`, `random_trace`, `set_targets` and `simulate_schedule`.
Result<ScheduleComparison> compare_policies(const ScheduleOptions& options);

/// A table for people: a description of the trace and a line per policy, at most 79 columns wide.
std::string table_of(const ScheduleComparison& comparison);

/// A JSON object with the trace, the limits, the costs and all totals; times in milliseconds.
std::string json_of(const ScheduleOptions& options, const ScheduleComparison& comparison);

/// `launcher bench schedule`: prints the table on stdout, errors on stderr.
ExitCode run_schedule_bench(const ScheduleOptions& options);

}  // namespace troupe
