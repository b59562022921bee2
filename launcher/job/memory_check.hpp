#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/job/job_plan.hpp"
#include "launcher/machine/machine.hpp"

namespace troupe {

/// Decides `plan.kv_blocks` of a job on CPUs, whose workers share the `free_bytes` of host memory,
/// if they are known, and adds to `plan.problems` what cannot fit, with the key to change.
void judge_host_memory(JobPlan& plan, std::optional<std::uint64_t> free_bytes);

/// The same for a job on GPUs that have `memory_bytes` each; 0: not known, then nothing is
/// compared. The memory of passes and of CUDA itself is an estimate, so a job that barely fits may
/// still be refused by its workers.
void judge_gpu_memory(JobPlan& plan, std::uint64_t memory_bytes);

}  // namespace troupe
