#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "parallel/collectives/hierarchical/hierarchical_algorithms.hpp"

namespace troupe {
namespace {

// Gathers on the node what its ranks have of the ranks here, or of all others. Of a run each rank
// of the node has one range, in order of place, so that nothing is packed.
Result<void> gather_runs(HierarchicalGroup& group, std::span<std::byte> all,
                         std::span<const std::size_t> bytes_per_rank, bool of_ranks_here) {
  const NodeLayout& layout = group.layout;
  if (!group.node) return {};
  const std::vector<std::size_t> begins = begins_of(bytes_per_rank);
  for (const NodeLayout::Run& run : layout.runs_here()) {
    if (layout.is_here(run.begin) != of_ranks_here) continue;
    std::vector<std::size_t> bytes(layout.members_here().size());
    for (int r = run.begin; r < run.end; ++r) {
      const int receiver = layout.receiver(r, layout.own_node());
      bytes[static_cast<std::size_t>(layout.place_of(receiver))] +=
          bytes_per_rank[static_cast<std::size_t>(r)];
    }
    const auto region = all.subspan(begins[static_cast<std::size_t>(run.begin)],
                                    std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}));
    const auto mine =
        region.subspan(begins_of(bytes)[layout.own_place()], bytes[layout.own_place()]);
    TROUPE_CHECK(group.node->all_gather(view_of(mine), view_of(region), rows_of(bytes)));
  }
  return {};
}

}  // namespace

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
  for (int r = 0; r < layout.size(); ++r) {
    const bool is_received =
        !layout.is_here(r) && layout.receiver(r, layout.own_node()) == layout.rank();
    if (is_received) transfers.receive(r, slice(r));
  }
  TROUPE_CHECK(group.network->send_ahead(call, transfers));
  TROUPE_CHECK(gather_runs(group, all, bytes_per_rank, true));
  TROUPE_CHECK(group.network->exchange(call, std::move(transfers)));
  return gather_runs(group, all, bytes_per_rank, false);
}

}  // namespace troupe
