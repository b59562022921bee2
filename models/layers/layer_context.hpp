#pragma once

#include "models/config/model_config.hpp"
#include "models/layers/model_limits.hpp"
#include "models/layers/moe/expert_group.hpp"
#include "models/layers/parallel/context_group.hpp"
#include "models/layers/parallel/dense_group.hpp"
#include "models/layers/parallel/parallel_context.hpp"
#include "models/layers/parallel/tensor_group.hpp"
#include "models/layers/weights/weights.hpp"
#include "models/layers/workspace.hpp"
#include "models/ops/ops.hpp"

namespace troupe {

/// The objects that every layer of a model is built from. `weights` is needed while a layer is
/// being built; the rest must outlive it.
struct LayerContext {
  const ModelConfig& config;
  const ModelLimits& limits;
  const Weights& weights;
  Workspace& space;
  Ops& ops;
  const ParallelContext& parallel;
  TensorGroup& tensor;    ///< the ranks that share each matrix, but for `dense`
  ExpertGroup& experts;   ///< the ranks that share a layer's experts
  ContextGroup& context;  ///< the ranks that share the rows of a pass
  /// The ranks of several replicas that share the matrices of MLPs, embedding and head; or null.
  DenseGroup* dense;
};

}  // namespace troupe
