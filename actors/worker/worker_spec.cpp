#include "actors/worker/worker_spec.hpp"

#include <algorithm>
#include <iterator>

namespace troupe {

Result<Mesh> mesh_of(const WorkerSpec& spec) {
  return Mesh::create({.data = spec.data_parallel_size,
                       .pipeline = spec.pipeline_parallel_size,
                       .context = spec.context_parallel_size,
                       .tensor = spec.tensor_parallel_size},
                      spec.expert_parallel_size, spec.data_parallel_attention);
}

std::vector<int> ranks_here(const WorkerSpec& spec, std::span<const int> ranks) {
  std::vector<int> here;
  std::ranges::copy_if(ranks, std::back_inserter(here), [&](int rank) {
    return spec.nodes.empty() || spec.nodes[static_cast<std::size_t>(rank)] ==
                                     spec.nodes[static_cast<std::size_t>(spec.rank)];
  });
  return here;
}

bool answers_steps(const Mesh& mesh, int rank) {
  const MeshCoordinates at = mesh.coordinates(rank);
  return at == MeshCoordinates{.data = at.data, .stage = mesh.shape().pipeline - 1};
}

}  // namespace troupe
