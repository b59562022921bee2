#pragma once

#include <optional>
#include <span>
#include <vector>

#include "runtime/node/resources.hpp"

namespace troupe {

/// Chooses a node for each bundle, as an index into `free`, which has the free amounts of each
/// node. Empty if the strategy finds no place for all of them. No amount is negative.
///
/// - strict_pack: the first node that has room for all.
/// - strict_spread: a node for each bundle that no other one gets. Exact: if there is such an
///   assignment, it is found (Kuhn, The Hungarian method for the assignment problem, 1955:
///   augmenting paths from each bundle).
/// - pack: like strict_pack if that is possible; else each bundle, in the given order, goes to the
///   first node that has room for it; if that fails, the same with large bundles first.
/// - spread: like strict_spread if that is possible; else each bundle, in the given order, goes to
///   the node with the fewest bundles that has room for it; if that fails, large bundles first.
///
/// pack and spread may miss an assignment that exists: to find it is bin packing. The time is
/// O(bundles x nodes), for strict_spread and spread as long as few bundles compete for a node.
std::optional<std::vector<std::size_t>> place_bundles(std::span<const Resources> bundles,
                                                      std::span<const Resources> free,
                                                      PlacementStrategy strategy);

}  // namespace troupe
