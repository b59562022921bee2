#include "parallel/experts/expert_share.hpp"

#include <cassert>

namespace troupe {

ExpertShare expert_share(std::int64_t experts, const Mesh& mesh, int rank) {
  assert(experts % mesh.expert_parallel_size() == 0);
  const ExpertPlace place = mesh.expert_place(rank);
  const std::int64_t each = experts / mesh.expert_parallel_size();
  return {{place.expert_rank * each, each}, {place.split_index, place.split_count}};
}

}  // namespace troupe
