#include "actors/worker/worker_spec.hpp"

#include <algorithm>

namespace troupe {

Result<Mesh> mesh_of(const WorkerSpec& spec) {
  return Mesh::create({.data = spec.data_parallel_size,
                       .pipeline = spec.pipeline_parallel_size,
                       .tensor = spec.tensor_parallel_size},
                      spec.expert_parallel_size);
}

bool share_a_node(const WorkerSpec& spec, std::span<const int> ranks) {
  if (spec.nodes.empty()) return true;
  const auto node_of = [&](int rank) { return spec.nodes[static_cast<std::size_t>(rank)]; };
  return std::ranges::all_of(ranks,
                             [&](int rank) { return node_of(rank) == node_of(ranks.front()); });
}

bool answers_steps(const Mesh& mesh, int rank) {
  const MeshCoordinates at = mesh.coordinates(rank);
  return at == MeshCoordinates{.data = at.data, .stage = mesh.shape().pipeline - 1};
}

}  // namespace troupe
