#pragma once

#include <string>
#include <vector>

namespace troupe::launcher_test {

class LauncherJob;

/// A batch of the demo's model on four hosts with a rank each, which `launcher bench faults`
/// breaks.
struct BrokenBatch {
  std::string starter;                ///< "ssh" or "slurm"
  std::vector<std::string> parallel;  ///< settings of four ranks: "pipeline_parallel_size=4"
  std::string kinds;                  ///< of faults, with commas between
  int faults = 1;
};

/// Why there is nothing to start such a batch with; empty if there is.
std::string missing_for(const BrokenBatch& batch);

/// Runs the batch in the folder of `job`, and expects that all faults were made and recovered from,
/// that all answers are the bytes of the undisturbed run, and that no process, socket or memory is
/// left anywhere. Prints the times.
void expect_survived(const LauncherJob& job, const BrokenBatch& batch);

}  // namespace troupe::launcher_test
