#include "actors/worker/worker_spec.hpp"

namespace troupe {

Result<Mesh> mesh_of(const WorkerSpec& spec) {
  return Mesh::create({.data = spec.data_parallel_size,
                       .pipeline = spec.pipeline_parallel_size,
                       .tensor = spec.tensor_parallel_size},
                      spec.expert_parallel_size);
}

bool answers_steps(const Mesh& mesh, int rank) {
  const MeshCoordinates at = mesh.coordinates(rank);
  return at == MeshCoordinates{.data = at.data, .stage = mesh.shape().pipeline - 1};
}

}  // namespace troupe
