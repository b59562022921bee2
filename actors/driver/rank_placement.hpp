#pragma once

#include <span>
#include <string>
#include <vector>

#include "parallel/mesh/mesh.hpp"
#include "runtime/base/result.hpp"
#include "runtime/node/resources.hpp"

namespace troupe {

/// A node that takes workers.
struct WorkerNode {
  std::string name;
  int devices = 0;  ///< workers that it takes
};

/// The node of each rank, as an index into `nodes`: mesh order fills one node after the other. A
/// tensor group that fits on a node is not split over two; the devices left over before it stay
/// unused. Errors: resource_exhausted with what is needed and what there is.
Result<std::vector<int>> place_ranks(const Mesh& mesh, std::span<const WorkerNode> nodes);

/// The same for the nodes of a cluster, whose devices are the workers that they take: the node's
/// name of each rank.
Result<std::vector<std::string>> nodes_of_ranks(const Mesh& mesh, std::span<const NodeSpec> nodes);

}  // namespace troupe
