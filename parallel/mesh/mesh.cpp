#include "parallel/mesh/mesh.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include <fmt/format.h>

namespace troupe {

Result<void> check_divides(std::string_view divisor_name, long divisor, std::string_view value_name,
                           long value) {
  if (divisor > 0 && value % divisor == 0) return {};
  return fail(ErrorCode::invalid_argument, "{} {} does not divide {} {}", divisor_name, divisor,
              value_name, value);
}

Result<Mesh> Mesh::create(MeshShape shape, int expert_parallel_size, bool data_parallel_attention) {
  const std::pair<std::string_view, int> extents[] = {
      {"data_parallel_size", shape.data},
      {"pipeline_parallel_size", shape.pipeline},
      {"context_parallel_size", shape.context},
      {"tensor_parallel_size", shape.tensor},
      {"expert_parallel_size", expert_parallel_size}};
  for (const auto& [name, extent] : extents) {
    if (extent < 1) {
      return fail(ErrorCode::invalid_argument, "{} is {}; it must be at least 1", name, extent);
    }
  }
  TROUPE_CHECK(check_divides("expert_parallel_size", expert_parallel_size,
                             "tensor x context x data size",
                             long{shape.tensor} * shape.context * shape.data));
  // Filling tensor, then context, then data must leave no dimension partly used while ranks are
  // left.
  const std::pair<std::string_view, int> filled[] = {{"tensor_parallel_size", shape.tensor},
                                                     {"context_parallel_size", shape.context},
                                                     {"data_parallel_size", shape.data}};
  int rest = expert_parallel_size;
  for (const auto& [name, extent] : filled) {
    if (rest <= extent) {
      TROUPE_CHECK(check_divides("expert_parallel_size", rest, name, extent));
      break;
    }
    TROUPE_CHECK(check_divides(name, extent, "expert_parallel_size", rest));
    rest /= extent;
  }
  if (data_parallel_attention && shape.data == 1) {
    return fail(ErrorCode::invalid_argument,
                "data_parallel_attention is for several replicas that share dense layers, but "
                "data_parallel_size is 1: raise it");
  }
  if (data_parallel_attention && shape.context > 1) {
    return fail(ErrorCode::invalid_argument,
                "data_parallel_attention with context_parallel_size {}: replicas that share dense "
                "layers do not divide the rows of a step over context ranks; set it to 1",
                shape.context);
  }
  return Mesh(shape, expert_parallel_size, data_parallel_attention);
}

MeshCoordinates Mesh::coordinates(int rank) const {
  assert(rank >= 0 && rank < world_size());
  MeshCoordinates at;
  at.tensor = rank % shape_.tensor;
  rank /= shape_.tensor;
  at.context = rank % shape_.context;
  rank /= shape_.context;
  at.stage = rank % shape_.pipeline;
  at.data = rank / shape_.pipeline;
  return at;
}

int Mesh::rank(const MeshCoordinates& at) const {
  assert(at.data >= 0 && at.data < shape_.data && at.stage >= 0 && at.stage < shape_.pipeline);
  assert(at.context >= 0 && at.context < shape_.context);
  assert(at.tensor >= 0 && at.tensor < shape_.tensor);
  return ((at.data * shape_.pipeline + at.stage) * shape_.context + at.context) * shape_.tensor +
         at.tensor;
}

std::vector<int> Mesh::group(MeshDimension dimension, int rank) const {
  MeshCoordinates at = coordinates(rank);
  const auto [coordinate, extent] = [&]() -> std::pair<int*, int> {
    switch (dimension) {
      case MeshDimension::data:
        return {&at.data, shape_.data};
      case MeshDimension::pipeline:
        return {&at.stage, shape_.pipeline};
      case MeshDimension::context:
        return {&at.context, shape_.context};
      case MeshDimension::tensor:
        break;
    }
    return {&at.tensor, shape_.tensor};
  }();
  std::vector<int> ranks;
  for (*coordinate = 0; *coordinate < extent; ++*coordinate) ranks.push_back(this->rank(at));
  return ranks;
}

int Mesh::stage_index(int rank) const {
  const MeshCoordinates at = coordinates(rank);
  return (at.data * shape_.context + at.context) * shape_.tensor + at.tensor;
}

int Mesh::rank_at_stage_index(int like_rank, int index) const {
  MeshCoordinates at;
  at.stage = coordinates(like_rank).stage;
  at.tensor = index % shape_.tensor;
  index /= shape_.tensor;
  at.context = index % shape_.context;
  at.data = index / shape_.context;
  return rank(at);
}

ExpertPlace Mesh::expert_place(int rank) const {
  const int index = stage_index(rank);
  const int left_over = index / expert_parallel_size_;
  ExpertPlace place;
  place.expert_rank = index % expert_parallel_size_;
  place.split_count = std::max(1, shape_.tensor / expert_parallel_size_);
  place.split_index = left_over % place.split_count;
  place.copy_index = left_over / place.split_count;
  place.copy_count =
      shape_.tensor * shape_.context * shape_.data / expert_parallel_size_ / place.split_count;
  return place;
}

std::vector<int> Mesh::dispatch_group(int rank) const {
  const int size = expert_parallel_size_ * expert_place(rank).split_count;
  const int first = stage_index(rank) / size * size;
  std::vector<int> ranks;
  for (int i = 0; i < size; ++i) ranks.push_back(rank_at_stage_index(rank, first + i));
  return ranks;
}

int Mesh::replicas_per_domain() const {
  const int of_experts = std::max(1, expert_parallel_size_ / (shape_.tensor * shape_.context));
  return data_parallel_attention_ && of_experts == 1 ? shape_.data : of_experts;
}

int Mesh::dense_size() const {
  return data_parallel_attention_ ? replicas_per_domain() * shape_.tensor : shape_.tensor;
}

int Mesh::dense_index(int rank) const {
  const MeshCoordinates at = coordinates(rank);
  if (!data_parallel_attention_) return at.tensor;
  return at.data % replicas_per_domain() * shape_.tensor + at.tensor;
}

std::vector<int> Mesh::dense_group(int rank) const {
  if (!data_parallel_attention_) return group(MeshDimension::tensor, rank);
  const int first = stage_index(rank) - dense_index(rank);
  std::vector<int> ranks;
  for (int i = 0; i < dense_size(); ++i) ranks.push_back(rank_at_stage_index(rank, first + i));
  return ranks;
}

int Mesh::expert_rank_of(int expert, int experts) const {
  assert(expert >= 0 && expert < experts && experts % expert_parallel_size_ == 0);
  return expert / (experts / expert_parallel_size_);
}

std::string Mesh::describe(int rank) const {
  const MeshCoordinates at = coordinates(rank);
  return fmt::format("data {}, stage {}, context {}, tensor {}", at.data, at.stage, at.context,
                     at.tensor);
}

}  // namespace troupe
