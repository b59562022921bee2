#pragma once

#include <span>
#include <string>
#include <vector>

#include "parallel/mesh/mesh.hpp"
#include "runtime/base/result.hpp"
#include "runtime/node/placement_group.hpp"

namespace troupe {

// Each step domain has a placement group of its own, which packs, so that a domain which has lost a
// node waits for no other one's.

/// The ranks of a step domain, which are consecutive.
int ranks_per_domain(const Mesh& mesh);
/// The bundles of the workers of one step domain of a mesh, in mesh order: one for each tensor
/// group if there is a node with as many devices, else one for each rank. A worker takes a device.
std::vector<Resources> worker_bundles(const Mesh& mesh, std::span<const NodeSpec> nodes);
/// The group of a step domain of such bundles that has no places yet: their nodes have no names.
PlacementGroup no_places(const std::vector<Resources>& bundles);
bool has_places(const PlacementGroup& domain);
/// The index of a rank's bundle in its domain's group, if that has so many.
std::size_t bundle_of(const Mesh& mesh, int rank, std::size_t bundles);

/// The node of each rank; `domains`: a group made of worker_bundles() for each domain, in order.
std::vector<std::string> nodes_of_ranks(const Mesh& mesh, std::span<const PlacementGroup> domains);
/// The same for groups that would be made in this order on these nodes while nobody else is there,
/// and on those that join later once the others have no room.
/// Errors: resource_exhausted with what is needed and what there is.
Result<std::vector<std::string>> nodes_of_ranks(const Mesh& mesh, std::span<const NodeSpec> nodes);
/// The same, as indices into `nodes`.
Result<std::vector<int>> place_ranks(const Mesh& mesh, std::span<const NodeSpec> nodes);

}  // namespace troupe
