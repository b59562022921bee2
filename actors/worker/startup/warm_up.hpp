#pragma once

#include <cstdint>

#include "actors/worker/model_runner.hpp"
#include "models/model/model.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Runs `runner` on invented steps: a prompt, then for each length at which decode passes are
/// captured, the longest first, as many sequences of two tokens. So a device loads its kernels,
/// tunes its GEMMs and captures its passes before the first request. In a pipeline each stage first
/// runs passes of many prompts by itself. Leaves no sequence behind; the cache blocks that it wrote
/// to count as empty. All ranks of a job must call it, with runners that have not begun a step.
/// Errors: those of the runner.
Result<void> warm_up(ModelRunner& runner, const Model& model, std::int64_t kv_blocks);

}  // namespace troupe
