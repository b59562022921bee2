#include <algorithm>
#include <utility>
#include <vector>

#include "parallel/collectives/hierarchical/hierarchical_algorithms.hpp"
#include "parallel/collectives/tree_sum.hpp"
#include "parallel/collectives/two_shot.hpp"

namespace troupe {

Result<std::span<const float>> sum_node_subtrees(HierarchicalGroup& group,
                                                 std::span<const float> partial,
                                                 std::span<const std::size_t> shares) {
  const NodeLayout& layout = group.layout;
  if (!group.node) return partial;
  const std::size_t count = shares[layout.own_place()];
  const auto rows = rows_of(shares);
  const std::size_t subtrees = layout.subtrees_of(layout.own_node());
  const auto sums = group.partial_sums.floats(subtrees * count);
  if (subtrees == 1) {
    TROUPE_CHECK(group.node->reduce_scatter_tree(view_of(partial), view_of(sums), rows));
    return std::span<const float>(sums);
  }
  const std::size_t ranks = shares.size();
  const auto leaves = group.leaves.floats(ranks * count);
  TROUPE_CHECK(
      group.node->all_to_all(view_of(partial), rows, view_of(leaves),
                             std::vector<std::int64_t>(ranks, static_cast<std::int64_t>(count))));
  float* out = sums.data();
  for (const Subtree& subtree : layout.subtrees()) {
    if (subtree.node != layout.own_node()) continue;
    std::vector<const float*> terms;
    for (int r = subtree.begin; r < subtree.end; ++r) {
      terms.push_back(leaves.data() + static_cast<std::size_t>(layout.place_of(r)) * count);
    }
    tree_sum(terms, out, count);
    out += count;
  }
  return std::span<const float>(sums);
}

namespace {

// Exchanges `own`, the sums of this node's subtrees, for those of the ranks at the same place of
// the other nodes, and adds all.
Result<void> add_nodes(HierarchicalGroup& group, std::span<const float> own, std::span<float> share,
                       const CollectiveCall& call) {
  const NodeLayout& layout = group.layout;
  const auto& subtrees = layout.subtrees();
  Transfers transfers(layout.size());
  std::vector<const float*> sums(subtrees.size());
  float* room = group.received.floats(subtrees.size() * share.size()).data();
  for (int node = 0; node < layout.nodes(); ++node) {
    const int peer = layout.members(node)[layout.own_place()];
    const std::span<float> theirs(room, layout.subtrees_of(node) * share.size());
    const float* next = node == layout.own_node() ? own.data() : theirs.data();
    for (std::size_t t = 0; t < subtrees.size(); ++t) {
      if (subtrees[t].node == node) sums[t] = std::exchange(next, next + share.size());
    }
    if (node == layout.own_node()) continue;
    room += theirs.size();
    transfers.send(peer, std::as_bytes(own));
    transfers.receive(peer, std::as_writable_bytes(theirs));
  }
  TROUPE_CHECK(group.network->exchange(call, std::move(transfers)));
  // For a rank that is alone on its node, `share` may be the term itself.
  const bool in_place = own.data() == share.data();
  const auto out = in_place ? group.partial_sums.floats(share.size()) : share;
  add_subtrees(subtrees, sums, out.data(), out.size());
  if (in_place) std::ranges::copy(out, share.begin());
  return {};
}

}  // namespace

Result<void> hierarchical_all_reduce_one_shot(HierarchicalGroup& group,
                                              std::span<const float> partial, std::span<float> sum,
                                              const CollectiveCall& call) {
  const NodeLayout& layout = group.layout;
  std::vector<std::size_t> shares = equal_shares(partial.size(), layout.fewest_members());
  shares.resize(layout.members_here().size());  // the others take no part in the network's step
  TROUPE_TRY(const auto own, sum_node_subtrees(group, partial, shares));
  const std::size_t place = layout.own_place();
  const auto share = sum.subspan(begins_of(shares)[place], shares[place]);
  if (place < layout.fewest_members()) TROUPE_CHECK(add_nodes(group, own, share, call));
  if (!group.node) return {};
  return group.node->all_gather(view_of(share), view_of(sum), rows_of(shares));
}

Result<void> hierarchical_all_reduce_two_shot(HierarchicalGroup& group,
                                              std::span<const float> partial, std::span<float> sum,
                                              const CollectiveCall& call) {
  const auto ranks = static_cast<std::size_t>(group.layout.size());
  const auto own = static_cast<std::size_t>(group.layout.rank());
  const std::vector<std::size_t> shares = equal_shares(partial.size(), ranks);
  const auto share = sum.subspan(begins_of(shares)[own], shares[own]);
  TROUPE_CHECK(hierarchical_reduce_scatter(group, partial, share, shares, call));
  std::vector<std::size_t> bytes;
  for (const std::size_t count : shares) bytes.push_back(count * sizeof(float));
  return hierarchical_all_gather(group, std::as_bytes(share), std::as_writable_bytes(sum), bytes,
                                 call);
}

}  // namespace troupe
