#include "actors/driver/rank_placement.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "runtime/node/place_bundles.hpp"

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

int ranks_per_domain(const Mesh& mesh) {
  return mesh.replicas_per_domain() * (mesh.world_size() / mesh.shape().data);
}

std::vector<Resources> worker_bundles(const Mesh& mesh, std::span<const NodeSpec> nodes) {
  const int tensor = mesh.shape().tensor;
  const bool fits_on_one = std::ranges::any_of(
      nodes, [&](const NodeSpec& node) { return std::ssize(node.devices) >= tensor; });
  const int each = fits_on_one ? tensor : 1;
  const Resources bundle{.devices = each};
  return std::vector<Resources>(static_cast<std::size_t>(ranks_per_domain(mesh) / each), bundle);
}

PlacementGroup no_places(const std::vector<Resources>& bundles) {
  PlacementGroup group;
  for (const Resources& bundle : bundles)
    group.bundles.push_back({.resources = bundle, .node = {}, .devices = {}});
  return group;
}

bool has_places(const PlacementGroup& domain) { return !domain.bundles.front().node.empty(); }

std::size_t bundle_of(const Mesh& mesh, int rank, std::size_t bundles) {
  const auto ranks = static_cast<std::size_t>(ranks_per_domain(mesh));
  return static_cast<std::size_t>(rank) % ranks / (ranks / bundles);
}

Result<std::vector<int>> place_ranks(const Mesh& mesh, std::span<const NodeSpec> nodes) {
  const std::vector<Resources> bundles = worker_bundles(mesh, nodes);
  std::vector<Resources> free, later(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    free.push_back(nodes[i].joins_later ? Resources{} : nodes[i].capacity());
    if (nodes[i].joins_later) later[i] = nodes[i].capacity();
  }
  std::vector<int> node_of_rank;
  while (std::ssize(node_of_rank) < mesh.world_size()) {
    auto placed = place_bundles(bundles, free, PlacementStrategy::pack);
    if (!placed) {
      for (std::size_t i = 0; i < nodes.size(); ++i) free[i] += std::exchange(later[i], {});
      placed = place_bundles(bundles, free, PlacementStrategy::pack);
    }
    if (!placed) return no_room(mesh, nodes);
    for (std::size_t i = 0; i < bundles.size(); ++i) free[(*placed)[i]] -= bundles[i];
    for (int rank = 0; rank < ranks_per_domain(mesh); ++rank) {
      node_of_rank.push_back(static_cast<int>((*placed)[bundle_of(mesh, rank, bundles.size())]));
    }
  }
  return node_of_rank;
}

std::vector<std::string> nodes_of_ranks(const Mesh& mesh, std::span<const PlacementGroup> domains) {
  std::vector<std::string> names;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const auto domain = static_cast<std::size_t>(rank / ranks_per_domain(mesh));
    const auto& bundles = domains[domain].bundles;
    names.push_back(bundles[bundle_of(mesh, rank, bundles.size())].node);
  }
  return names;
}

Result<std::vector<std::string>> nodes_of_ranks(const Mesh& mesh, std::span<const NodeSpec> nodes) {
  TROUPE_TRY(const std::vector<int> placed, place_ranks(mesh, nodes));
  std::vector<std::string> names;
  for (const int node : placed) names.push_back(nodes[static_cast<std::size_t>(node)].name);
  return names;
}

}  // namespace troupe
