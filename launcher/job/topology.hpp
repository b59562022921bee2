#pragma once

#include "launcher/config/cluster_config.hpp"
#include "models/config/model_config.hpp"
#include "parallel/mesh/mesh.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// What `expert_parallel_size: auto` is: the most of the ranks that share a sequence which divides
/// both them and the experts; 1 for models without experts.
int auto_expert_parallel_size(const MeshShape& shape, const ModelConfig& model);

/// The mesh that the parallel sizes of `config` make of the one node there is. Errors:
/// invalid_argument that begins with the YAML key and says what does not divide what, or fit:
/// heads, KV heads, the segments that sums are made of, experts, layers, devices.
Result<Mesh> plan_mesh(const Config& config, const ModelConfig& model);

/// Refuses what GPUs do not compute with the same bits at every tensor size: other dtypes than
/// bf16, tensor sizes above max_exact_segments, experts that are split. Errors: unsupported, with
/// the YAML key that asks for it and the one to change.
Result<void> check_deterministic_gpus(const Mesh& mesh, const ModelConfig& model, DType dtype);

}  // namespace troupe
