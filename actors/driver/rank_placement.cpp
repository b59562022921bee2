#include "actors/driver/rank_placement.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace troupe {
namespace {

Error no_room(const Mesh& mesh, std::span<const NodeSpec> nodes) {
  std::string room;
  for (const NodeSpec& node : nodes) {
    room += fmt::format("{}{} takes {}", room.empty() ? "" : ", ", node.name, node.devices.size());
  }
  return fail(ErrorCode::resource_exhausted,
              "{} workers in tensor groups of {} do not fit on the nodes: {}", mesh.world_size(),
              mesh.shape().tensor, room);
}

}  // namespace

Result<std::vector<int>> place_ranks(const Mesh& mesh, std::span<const NodeSpec> nodes) {
  const int group = mesh.shape().tensor;
  const bool fits_on_one = std::ranges::any_of(
      nodes, [&](const NodeSpec& node) { return std::ssize(node.devices) >= group; });
  std::vector<int> placed;
  std::size_t node = 0;
  int used = 0;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const int wanted = fits_on_one && rank % group == 0 ? group : 1;
    while (node < nodes.size() && used + wanted > std::ssize(nodes[node].devices)) {
      ++node;
      used = 0;
    }
    if (node == nodes.size()) return no_room(mesh, nodes);
    placed.push_back(static_cast<int>(node));
    ++used;
  }
  return placed;
}

Result<std::vector<std::string>> nodes_of_ranks(const Mesh& mesh, std::span<const NodeSpec> nodes) {
  TROUPE_TRY(const std::vector<int> placed, place_ranks(mesh, nodes));
  std::vector<std::string> names;
  for (const int node : placed) names.push_back(nodes[static_cast<std::size_t>(node)].name);
  return names;
}

}  // namespace troupe
