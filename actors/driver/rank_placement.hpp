#pragma once

#include <span>
#include <string>
#include <vector>

#include "parallel/mesh/mesh.hpp"
#include "runtime/base/result.hpp"
#include "runtime/node/placement_group.hpp"

namespace troupe {

/// The bundles of the workers of a mesh, in mesh order, for a placement group that packs: one for
/// each tensor group if there is a node with as many devices, else one for each rank. A worker
/// takes a device.
std::vector<Resources> worker_bundles(const Mesh& mesh, std::span<const NodeSpec> nodes);
/// The index of the bundle of a rank, if the mesh has so many.
std::size_t bundle_of(const Mesh& mesh, int rank, std::size_t bundles);

/// The node of each rank of a group made of worker_bundles().
std::vector<std::string> nodes_of_ranks(const Mesh& mesh, const PlacementGroup& workers);
/// The same for a group that would be made on these nodes while nobody else is there. Errors:
/// resource_exhausted with what is needed and what there is.
Result<std::vector<std::string>> nodes_of_ranks(const Mesh& mesh, std::span<const NodeSpec> nodes);
/// The same, as indices into `nodes`.
Result<std::vector<int>> place_ranks(const Mesh& mesh, std::span<const NodeSpec> nodes);

}  // namespace troupe
