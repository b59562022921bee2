#pragma once

#include <string>
#include <vector>

#include "launcher/cli/fault_options.hpp"
#include "launcher/job/job_plan.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The kinds of faults to make, and what a person should know about them.
struct PossibleFaults {
  std::vector<FaultKind> kinds;
  std::string note;  ///< a sentence; empty: none
};

/// Returns the kinds that are asked for, or all but hang and link that the plan's nodes recover
/// from by themselves. Errors: invalid_argument for a job whose answers, or whose nodes, faults
/// would change for good.
Result<PossibleFaults> possible_faults(const FaultOptions& options, const JobPlan& plan);

}  // namespace troupe
