#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "actors/scheduler/scheduler.hpp"
#include "actors/simulation/schedule_simulation.hpp"
#include "actors/simulation/schedule_trace.hpp"
#include "launcher/cli/command_line.hpp"

namespace troupe {

/// What `launcher bench schedule` compares.
struct ScheduleOptions {
  std::vector<std::string> policies;  ///< names that `scheduling_policy` knows, none twice
  SchedulerConfig scheduler;          ///< its policy is each of them in turn
  StepCost cost;
  TraceSpec trace;
  std::string workload;  ///< a .csv file of lengths, its first trace.requests; empty: a random one
  TraceTargets targets;
  std::string json_path;  ///< where all figures go too; empty: nowhere
};

/// Reads the arguments that follow `bench schedule`. Help and mistakes come back as with
/// `parse_command_line`.
std::variant<ScheduleOptions, EarlyExit> parse_schedule_options(
    std::span<const std::string> arguments);

/// What `launcher bench schedule --help` prints.
std::string schedule_help_text();

}  // namespace troupe
