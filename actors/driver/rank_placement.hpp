#pragma once

#include <span>
#include <string>
#include <vector>

#include "parallel/mesh/mesh.hpp"
#include "runtime/base/result.hpp"
#include "runtime/node/resources.hpp"

namespace troupe {

/// The node of each rank, as an index into `nodes`, which take a worker for each of their devices:
/// mesh order fills one node after the other. A tensor group that fits on a node is not split over
/// two; the devices left over before it stay unused. Errors: resource_exhausted with what is needed
/// and what there is.
Result<std::vector<int>> place_ranks(const Mesh& mesh, std::span<const NodeSpec> nodes);

/// The same, as the names of the nodes.
Result<std::vector<std::string>> nodes_of_ranks(const Mesh& mesh, std::span<const NodeSpec> nodes);

}  // namespace troupe
