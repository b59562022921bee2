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

/// The first objects of a cluster by id.
struct AskedObjects {
  std::vector<ObjectInfo> objects;
  std::uint64_t left_out = 0;       ///< further objects
  std::vector<std::string> silent;  ///< processes that have not answered
};
/// Asks for at most `limit` objects (0: all).
Result<AskedObjects> ask_objects(StateClient& client, std::uint64_t limit);

/// "23 of 1023 actors are left out: ...", a paragraph.
std::string left_out_note(std::uint64_t left_out, std::uint64_t shown, std::string_view what,
                          std::size_t columns);
inline std::string left_out_note(const AskedActors& asked, std::size_t columns) {
  return left_out_note(asked.left_out, asked.actors.size(), "actors", columns);
}

}  // namespace troupe
