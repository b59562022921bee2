#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "launcher/job/job_plan.hpp"
#include "launcher/machine/machine.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The layout of a model on one machine, with the reason.
struct Arrangement {
  int tensor = 1;      ///< workers that share each layer
  int data = 1;        ///< replicas
  std::string reason;  ///< a sentence or two
};

/// Plans the job with these sizes on the machine that it is meant for.
using PlanArrangement = std::function<Result<JobPlan>(const Arrangement&)>;

/// Without GPUs: one worker on all cores. With GPUs: the smallest tensor size whose GPUs hold the
/// weights and the KV cache of a request of the model's full context, else the largest that starts
/// at all, and as many replicas as there are GPUs for. `weight_bytes`: of one whole model. Errors:
/// resource_exhausted if the GPUs do not hold the model, with how many would.
Result<Arrangement> arrange(const Machine& machine, std::uint64_t weight_bytes,
                            const PlanArrangement& plan);

}  // namespace troupe
