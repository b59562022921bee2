#pragma once

#include <cstdint>

#include "actors/worker/model_runner.hpp"
#include "models/model/model.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Has `runner` take steps that nobody asked for: a prompt, then for each length with which decode
/// passes are recorded, the longest first, as many sequences of two tokens. So a device loads its
/// kernels, measures its products and records its passes before the first request. In a pipeline
/// each stage takes passes of many prompts by itself before. Leaves no
/// sequence behind; blocks of the cache that it wrote to hold nothing. All ranks of a job must call
/// it, with runners that have not begun a step. Errors: those of the runner.
Result<void> warm_up(ModelRunner& runner, const Model& model, std::int64_t kv_blocks);

}  // namespace troupe
