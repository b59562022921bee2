#include <cstring>
#include <vector>

#include "parallel/collectives/hierarchical/hierarchical_algorithms.hpp"

namespace troupe {
namespace {

// The parts of this node's ranks as one range: where they lie if they adjoin, else in `scratch`.
template <class Byte>
struct NodeParts {
  NodeParts(const NodeLayout& layout, const std::vector<std::span<Byte>>& all, Scratch& scratch) {
    Byte* begin = nullptr;
    std::size_t total = 0;
    for (const int r : layout.members_here()) {
      const std::span<Byte> part = all[static_cast<std::size_t>(r)];
      parts.push_back(part);
      rows.push_back(static_cast<std::int64_t>(part.size()));
      if (part.empty()) continue;
      if (total == 0) begin = part.data();
      adjoin = adjoin && part.data() == begin + total;
      total += part.size();
    }
    if (!adjoin) packed = scratch.bytes(total);
    range = adjoin ? std::span<Byte>(begin, total) : std::span<Byte>(packed);
  }

  std::vector<std::span<Byte>> parts;
  std::vector<std::int64_t> rows;
  bool adjoin = true;
  std::span<std::byte> packed;  // if they do not
  std::span<Byte> range;
};

void copy(std::span<const std::byte> from, std::byte* to) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

Result<void> exchange_on_node(HierarchicalGroup& group, const SendParts& sends,
                              const ReceiveParts& receives) {
  const NodeParts<const std::byte> out(group.layout, sends, group.sent_here);
  const NodeParts<std::byte> in(group.layout, receives, group.received_here);
  if (!out.adjoin) {
    std::byte* to = out.packed.data();
    for (const auto& part : out.parts) {
      copy(part, to);
      to += part.size();
    }
  }
  TROUPE_CHECK(group.node->all_to_all(view_of(out.range), out.rows, view_of(in.range), in.rows));
  if (!in.adjoin) {
    const std::byte* from = in.packed.data();
    for (const auto& part : in.parts) {
      copy({from, part.size()}, part.data());
      from += part.size();
    }
  }
  return {};
}

}  // namespace

Result<void> hierarchical_all_to_all(HierarchicalGroup& group, const SendParts& sends,
                                     const ReceiveParts& receives, const CollectiveCall& call) {
  const NodeLayout& layout = group.layout;
  Transfers transfers(layout.size());
  for (int r = 0; r < layout.size(); ++r) {
    if (layout.is_here(r)) continue;
    transfers.send(r, sends[static_cast<std::size_t>(r)]);
    transfers.receive(r, receives[static_cast<std::size_t>(r)]);
  }
  TROUPE_CHECK(group.network->send_ahead(call, transfers));
  if (group.node) {
    TROUPE_CHECK(exchange_on_node(group, sends, receives));
  } else {
    const auto own = static_cast<std::size_t>(layout.rank());
    if (sends[own].size() != receives[own].size()) {
      return fail(ErrorCode::invalid_argument,
                  "all-to-all: rank {} sends {} bytes to itself, but expects {}", own,
                  sends[own].size(), receives[own].size());
    }
    copy(sends[own], receives[own].data());
  }
  return group.network->exchange(call, std::move(transfers));
}

}  // namespace troupe
