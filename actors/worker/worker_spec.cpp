#include "actors/worker/worker_spec.hpp"

#include <fmt/format.h>

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

std::string epoch_name(std::uint32_t epoch) { return fmt::format("epoch {}", epoch); }

std::string step_channel_purpose(std::uint32_t epoch, std::int32_t replica,
                                 StepDirection direction) {
  return fmt::format("step plane/{}/replica {}/{}", epoch_name(epoch), replica,
                     direction == StepDirection::plans ? "plans" : "results");
}

}  // namespace troupe
