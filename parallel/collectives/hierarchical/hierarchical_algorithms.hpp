#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "parallel/collectives/collective_call.hpp"
#include "parallel/collectives/hierarchical/hierarchical_group.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The algorithms behind HierarchicalCollectives, one a file. Arguments are checked. Errors are
/// those of the group's `node` and `network`.

/// The sums of this node's subtrees over this rank's share of the elements, one after another.
/// `shares`: how many consecutive elements each rank of the node takes. May refer to `partial`, or
/// to the group's scratch memory.
Result<std::span<const float>> sum_node_subtrees(HierarchicalGroup& group,
                                                 std::span<const float> partial,
                                                 std::span<const std::size_t> shares);

/// Each rank of a node adds up the node's subtrees for a share of the elements; the ranks at the
/// same place of every node exchange and add these sums; then the ranks of each node gather the
/// shares. `partial` may equal `sum`.
Result<void> hierarchical_all_reduce_one_shot(HierarchicalGroup& group,
                                              std::span<const float> partial, std::span<float> sum,
                                              const CollectiveCall& call);

/// A reduce-scatter and an all-gather over all ranks: less bytes over the network than one shot if
/// there are more than two nodes. `partial` may equal `sum`.
Result<void> hierarchical_all_reduce_two_shot(HierarchicalGroup& group,
                                              std::span<const float> partial, std::span<float> sum,
                                              const CollectiveCall& call);

/// Each rank of a node adds up the node's subtrees for an equal share of the elements, and sends
/// every other rank what of that is the other's. `sum` may be the slice of `partial` that holds its
/// elements.
Result<void> hierarchical_reduce_scatter(HierarchicalGroup& group, std::span<const float> partial,
                                         std::span<float> sum,
                                         std::span<const std::size_t> elements_per_rank,
                                         const CollectiveCall& call);

/// A rank sends its part to one rank of every other node; then the ranks of each node gather what
/// they have received.
Result<void> hierarchical_all_gather(HierarchicalGroup& group, std::span<const std::byte> part,
                                     std::span<std::byte> all,
                                     std::span<const std::size_t> bytes_per_rank,
                                     const CollectiveCall& call);

/// The bytes for each rank and from each, in order of rank.
using SendParts = std::vector<std::span<const std::byte>>;
using ReceiveParts = std::vector<std::span<std::byte>>;

/// Between nodes by the links, within one through its memory.
Result<void> hierarchical_all_to_all(HierarchicalGroup& group, const SendParts& sends,
                                     const ReceiveParts& receives, const CollectiveCall& call);

}  // namespace troupe
