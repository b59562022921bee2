#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/state/state_client.hpp"

namespace troupe {

/// The first actors of a cluster by id, asked for in pages.
struct AskedActors {
  std::vector<ActorState> actors;
  std::vector<EndedActor> ended;  ///< the latest first
  std::uint64_t left_out = 0;     ///< further actors
};

/// Asks for at most `limit` actors (0: all) and the last `ended`. Errors: StateClient::get.
Result<AskedActors> ask_actors(StateClient& client, std::uint64_t limit, std::uint32_t ended);

/// "23 of 1023 actors are left out: ...", a paragraph.
std::string left_out_note(const AskedActors& asked, std::size_t columns);

}  // namespace troupe
