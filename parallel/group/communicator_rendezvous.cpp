#include "parallel/group/communicator_rendezvous.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "parallel/collectives/hierarchical/hierarchical_collectives.hpp"
#include "parallel/collectives/self_collectives.hpp"
#include "runtime/memory/shared_memory.hpp"
#include "runtime/security/plane_keys.hpp"

namespace troupe {
namespace {

constexpr std::size_t slot_bytes = 1u << 20;

/// For communicators on one node, or of nodes on one machine.
constexpr const char* loopback_interface = "lo";

/// The node of each of `ranks`, numbered in the order of their first ranks.
std::vector<int> number_nodes(std::span<const int> ranks, std::span<const MemberPlace> places) {
  std::vector<std::string> names;
  std::vector<int> node_of;
  for (const int rank : ranks) {
    const std::string& name = places[static_cast<std::size_t>(rank)].node;
    const auto found = std::ranges::find(names, name);
    node_of.push_back(static_cast<int>(found - names.begin()));
    if (found == names.end()) names.push_back(name);
  }
  return node_of;
}

}  // namespace

std::string region_prefix(const GroupSeat& seat) {
  return fmt::format("group {}/epoch {}/", seat.group, seat.epoch);
}

Result<CommunicatorRendezvous> CommunicatorRendezvous::open(ActorContext& context,
                                                            const GroupSeat& seat,
                                                            CommunicatorSpec spec,
                                                            std::span<const MemberPlace> places) {
  const auto members = std::ssize(seat.members);
  const auto found = std::ranges::find(spec.ranks, seat.rank);
  const auto is_member = [&](int rank) { return 0 <= rank && rank < members; };
  if (found == spec.ranks.end() || !std::ranges::all_of(spec.ranks, is_member)) {
    return fail(ErrorCode::invalid_argument,
                "communicator '{}' of ranks {}: rank {} of {} is no member", spec.name,
                fmt::join(spec.ranks, ", "), seat.rank, members);
  }
  CommunicatorRendezvous meeting(std::move(spec));
  const std::vector<int>& ranks = meeting.spec_.ranks;
  const auto own = static_cast<int>(std::ranges::find(ranks, seat.rank) - ranks.begin());
  const auto size = static_cast<int>(ranks.size());
  if (size == 1) return meeting;
  meeting.node_of_ = number_nodes(ranks, places);
  std::vector<int> here;
  for (int rank = 0; rank < size; ++rank) {
    const auto node_of = [&](int at) { return meeting.node_of_[static_cast<std::size_t>(at)]; };
    if (node_of(rank) == node_of(own)) here.push_back(rank);
  }
  const bool is_on_one_node = here.size() == ranks.size();
  const std::string name =
      fmt::format("{}{} of rank {}", region_prefix(seat), meeting.spec_.name, ranks.front());
  if (meeting.spec_.shares_memory && here.size() > 1) {
    TROUPE_CHECK(meeting.attach(context, name, here, own));
    if (is_on_one_node) return meeting;
  }
  // Of this communicator alone: members that have started anew since, or that are of others, cannot
  // join it.
  ChannelScope scope{fmt::format("tensor plane/{}", name), {}};
  for (const int rank : ranks) {
    scope.members.push_back(seat.members[static_cast<std::size_t>(rank)].name);
  }
  TROUPE_TRY(const Key key, context.channel_key(scope));
  const bool is_local = is_on_one_node || context.node_address().empty();
  TROUPE_TRY(meeting.links_,
             NetworkRendezvous::announce(is_local ? loopback_interface : context.node_address(),
                                         own, size, meeting.spec_.mailbox_bytes, key,
                                         is_local ? PortRange{} : context.ports()));
  return meeting;
}

Result<void> CommunicatorRendezvous::attach(ActorContext& context, const std::string& name,
                                            std::span<const int> here, int own) {
  const auto size = static_cast<int>(here.size());
  const auto place = static_cast<int>(std::ranges::find(here, own) - here.begin());
  TROUPE_TRY(UniqueFd fd, context.shared_memory(
                              name, shm_collectives_bytes(size, slot_bytes, spec_.mailbox_bytes)));
  TROUPE_TRY(SharedMemory region, SharedMemory::map(std::move(fd)));
  TROUPE_TRY(on_node_, ShmCollectives::attach(std::move(region), place, size, spec_.mailbox_bytes));
  return {};
}

CommunicatorListener CommunicatorRendezvous::listener() const {
  return {spec_.name,
          {spec_.ranks.begin(), spec_.ranks.end()},
          links_ ? links_->addresses() : std::string()};
}

Result<std::unique_ptr<Collectives>> CommunicatorRendezvous::connect(
    std::span<const std::string> addresses, std::chrono::milliseconds timeout) {
  std::unique_ptr<Collectives> all;
  if (links_) {
    TROUPE_TRY(auto links, links_->connect(addresses, timeout));
    const bool is_hierarchical = spec_.shares_memory && std::ranges::max(node_of_) > 0;
    if (is_hierarchical) {
      all = std::make_unique<HierarchicalCollectives>(std::move(on_node_), std::move(links),
                                                      std::move(node_of_));
    } else {
      all = std::move(links);
    }
  } else if (on_node_) {
    all = std::move(on_node_);
  } else {
    all = std::make_unique<SelfCollectives>();
  }
  all->set_timeout(spec_.timeout);
  return all;
}

}  // namespace troupe
