#include <cstring>
#include <numeric>
#include <vector>

#include "parallel/collectives/hierarchical/hierarchical_algorithms.hpp"

namespace troupe {

Result<void> hierarchical_all_gather(HierarchicalGroup& group, std::span<const std::byte> part,
                                     std::span<std::byte> all,
                                     std::span<const std::size_t> bytes_per_rank,
                                     const CollectiveCall& call) {
  const NodeLayout& layout = group.layout;
  const std::vector<std::size_t> begins = begins_of(bytes_per_rank);
  const auto slice = [&](int r) {
    return all.subspan(begins[static_cast<std::size_t>(r)],
                       bytes_per_rank[static_cast<std::size_t>(r)]);
  };
  const auto own = slice(layout.rank());
  if (!own.empty() && own.data() != part.data()) std::memcpy(own.data(), part.data(), own.size());
  Transfers transfers(layout.size());
  for (int node = 0; node < layout.nodes(); ++node) {
    if (node != layout.own_node()) transfers.send(layout.receiver(layout.rank(), node), part);
  }
  const auto receiver_here = [&](int r) { return layout.receiver(r, layout.own_node()); };
  for (int r = 0; r < layout.size(); ++r) {
    const bool is_received = !layout.is_here(r) && receiver_here(r) == layout.rank();
    if (is_received) transfers.receive(r, slice(r));
  }
  TROUPE_CHECK(group.network->exchange(call, std::move(transfers)));
  if (!group.node) return {};
  // Within a run each rank of the node has one range of it, in order of place: nothing is packed.
  for (const NodeLayout::Run& run : layout.runs_here()) {
    std::vector<std::size_t> bytes(layout.members_here().size());
    for (int r = run.begin; r < run.end; ++r) {
      bytes[static_cast<std::size_t>(layout.place_of(receiver_here(r)))] += slice(r).size();
    }
    const auto region = all.subspan(begins[static_cast<std::size_t>(run.begin)],
                                    std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}));
    const auto mine =
        region.subspan(begins_of(bytes)[layout.own_place()], bytes[layout.own_place()]);
    TROUPE_CHECK(group.node->all_gather(view_of(mine), view_of(region), rows_of(bytes)));
  }
  return {};
}

}  // namespace troupe
