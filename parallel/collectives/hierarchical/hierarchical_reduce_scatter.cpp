#include <algorithm>
#include <utility>
#include <vector>

#include "parallel/collectives/hierarchical/hierarchical_algorithms.hpp"
#include "parallel/collectives/two_shot.hpp"
#include "parallel/sharding/sharding.hpp"

namespace troupe {
namespace {

// Elements [begin, begin + count) of `partial`.
struct Part {
  std::size_t begin = 0;
  std::size_t count = 0;
};

// The share of the elements that rank `s` adds up for its node.
Part share_of(const NodeLayout& layout, int s, std::size_t elements) {
  const auto ranks = static_cast<int>(layout.members(layout.node_of(s)).size());
  const Slice share = ceil_slice(static_cast<std::int64_t>(elements), {layout.place_of(s), ranks});
  return {static_cast<std::size_t>(share.begin), static_cast<std::size_t>(share.count)};
}

Part overlap(Part a, Part b) {
  const std::size_t begin = std::clamp(a.begin, b.begin, b.begin + b.count);
  return {begin, std::clamp(a.begin + a.count, b.begin, b.begin + b.count) - begin};
}

// What each rank gets of `own`, the sums of this node's subtrees over `share`: in place if there is
// one subtree, else one subtree's sums after another, in `outgoing`.
SendParts parts_to_send(const NodeLayout& layout, std::span<const float> own, Part share,
                        std::span<const Part> elements, Scratch& outgoing) {
  const std::size_t subtrees = layout.subtrees_of(layout.own_node());
  float* out = subtrees == 1 ? nullptr : outgoing.floats(own.size()).data();
  SendParts sends;
  for (const Part& theirs : elements) {
    const Part part = overlap(theirs, share);
    const auto of_subtree = [&](std::size_t t) {
      return own.subspan(t * share.count + part.begin - share.begin, part.count);
    };
    if (subtrees == 1) {
      sends.push_back(std::as_bytes(of_subtree(0)));
      continue;
    }
    const std::span<const float> packed(out, subtrees * part.count);
    for (std::size_t t = 0; t < subtrees; ++t) out = std::ranges::copy(of_subtree(t), out).out;
    sends.push_back(std::as_bytes(packed));
  }
  return sends;
}

// The number of the first of a node's subtrees.
std::size_t first_subtree_of(const NodeLayout& layout, int node) {
  const auto& subtrees = layout.subtrees();
  return static_cast<std::size_t>(std::ranges::find(subtrees, node, &Subtree::node) -
                                  subtrees.begin());
}

}  // namespace

Result<void> hierarchical_reduce_scatter(HierarchicalGroup& group, std::span<const float> partial,
                                         std::span<float> sum,
                                         std::span<const std::size_t> elements_per_rank,
                                         const CollectiveCall& call) {
  const NodeLayout& layout = group.layout;
  const auto& subtrees = layout.subtrees();
  std::vector<Part> elements;
  std::size_t begin = 0;
  for (const std::size_t count : elements_per_rank) {
    elements.push_back({begin, count});
    begin += count;
  }
  const Part mine = elements[static_cast<std::size_t>(layout.rank())];
  const auto shares = equal_shares(partial.size(), layout.members_here().size());
  TROUPE_TRY(const auto own, sum_node_subtrees(group, partial, shares));
  const SendParts sends = parts_to_send(
      layout, own, share_of(layout, layout.rank(), partial.size()), elements, group.outgoing);

  // One row of this rank's elements for each subtree. What comes from a node with one subtree is
  // received in its place; of one with several, each rank sends the parts of all in one message.
  const auto terms = group.received.floats(subtrees.size() * sum.size());
  const auto row_part = [&](std::size_t t, Part part) {
    return terms.subspan(t * sum.size() + part.begin - mine.begin, part.count);
  };
  float* room = group.incoming.floats(subtrees.size() * sum.size()).data();
  ReceiveParts receives;
  for (int s = 0; s < layout.size(); ++s) {
    const Part part = overlap(mine, share_of(layout, s, partial.size()));
    const std::size_t parts = layout.subtrees_of(layout.node_of(s));
    const std::span<float> packed(room, parts * part.count);
    const bool in_place = parts == 1 && part.count > 0;
    receives.push_back(std::as_writable_bytes(
        in_place ? row_part(first_subtree_of(layout, layout.node_of(s)), part) : packed));
    if (!in_place) room += packed.size();
  }
  TROUPE_CHECK(hierarchical_all_to_all(group, sends, receives, call));
  for (int s = 0; s < layout.size(); ++s) {
    const Part part = overlap(mine, share_of(layout, s, partial.size()));
    if (part.count == 0 || layout.subtrees_of(layout.node_of(s)) == 1) continue;
    const auto* next = reinterpret_cast<const float*>(receives[static_cast<std::size_t>(s)].data());
    for (std::size_t t = 0; t < subtrees.size(); ++t) {
      if (subtrees[t].node != layout.node_of(s)) continue;
      std::copy_n(std::exchange(next, next + part.count), part.count, row_part(t, part).begin());
    }
  }
  std::vector<const float*> sums(subtrees.size());
  for (std::size_t t = 0; t < sums.size(); ++t) sums[t] = terms.data() + t * sum.size();
  add_subtrees(subtrees, sums, sum.data(), sum.size());
  return {};
}

}  // namespace troupe
