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

/// The same of a job on GPUs that have `memory_bytes` each; 0: not known, then nothing is compared.
/// The memory that passes and CUDA itself take is estimated, so a job that only just fits may still
/// be refused by its workers, and what is refused here misses by more.
void judge_gpu_memory(JobPlan& plan, std::uint64_t memory_bytes);

}  // namespace troupe
