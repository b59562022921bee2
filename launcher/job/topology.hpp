#pragma once

#include <cstddef>
#include <vector>

#include "launcher/config/cluster_config.hpp"
#include "models/config/model_config.hpp"
#include "parallel/mesh/mesh.hpp"
#include "runtime/base/result.hpp"
#include "runtime/node/resources.hpp"

namespace troupe {

/// The value of `expert_parallel_size: auto`: the largest number of the ranks sharing a sequence
/// that divides both them and the experts; 1 for models without experts. `over_replicas`
/// (data_parallel_attention): of the ranks of all replicas, if whole tensor groups divide the
/// experts.
int auto_expert_parallel_size(const MeshShape& shape, const ModelConfig& model,
                              bool over_replicas = false);

/// Makes the mesh for the parallel sizes of `config`. Errors: invalid_argument
/// that begins with the YAML key and says what does not divide what, or does not fit: heads, KV
/// heads, the segments of sums, experts, layers, devices.
Result<Mesh> plan_mesh(const Config& config, const ModelConfig& model);

/// Adds places for nodes that join later to `nodes`, those of the start, until the ranks of all
/// replicas have one; returns how many. None if they fit, or if the job must begin with all.
/// Errors: invalid_argument, which begins with the key, if not even one step domain fits on the
/// nodes of the start, or if some of these are spares.
Result<std::size_t> add_later_nodes(const Config& config, const Mesh& mesh,
                                    std::vector<NodeSpec>& nodes);

/// Refuses settings for which GPUs cannot give the same bits at every tensor size: other dtypes
/// than bf16, tensor sizes above max_exact_segments, experts that are split. Errors: unsupported,
/// with the YAML key that requires it and the one to change.
Result<void> check_deterministic_gpus(const Mesh& mesh, const ModelConfig& model, DType dtype);

}  // namespace troupe
