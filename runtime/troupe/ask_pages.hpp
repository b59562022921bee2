#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/state/state_client.hpp"

namespace troupe {

// What a cluster may have many of, asked for in pages. Errors: StateClient::get.

/// All nodes, in the cluster's order.
Result<std::vector<NodeState>> ask_nodes(StateClient& client);

/// All placement groups, in the order of their creation.
Result<std::vector<GroupState>> ask_groups(StateClient& client);

/// The first actors of a cluster by id.
struct AskedActors {
  std::vector<ActorState> actors;
  std::vector<EndedActor> ended;  ///< the latest first
  std::uint64_t left_out = 0;     ///< further actors
};
/// Asks for at most `limit` actors (0: all) and the last `ended`.
Result<AskedActors> ask_actors(StateClient& client, std::uint64_t limit, std::uint32_t ended);

/// "23 of 1023 actors are left out: ...", a paragraph.
std::string left_out_note(const AskedActors& asked, std::size_t columns);

}  // namespace troupe
