#pragma once

#include "models/config/model_config.hpp"
#include "models/layers/model_limits.hpp"
#include "models/layers/weights.hpp"
#include "models/layers/workspace.hpp"
#include "models/ops/ops.hpp"
#include "parallel/collectives/collectives.hpp"

namespace troupe {

/// What every layer of a model is made of. `weights` is needed while a layer is being built; the
/// rest must outlive it.
struct LayerContext {
  const ModelConfig& config;
  const ModelLimits& limits;
  const Weights& weights;
  Workspace& space;
  Ops& ops;
  Collectives* tensor;  ///< of the ranks that share each matrix; null on one rank
};

}  // namespace troupe
