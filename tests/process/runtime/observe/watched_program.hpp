#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/actor/actor_types.hpp"

namespace troupe::test {

/// Registers the actors of the program.
void add_watched_actors(ActorTypes& types);

/// `main` of a program with a cluster: "front" calls "back" all the time, as the driver asks it to,
/// each on a host of its own, or both here if `hosts` is "0". It says "ready" and ends at a
/// SIGTERM. PROGRAM --watched NAME LOG_FOLDER HOSTS
int run_watched_program(const std::vector<std::string>& arguments);

}  // namespace troupe::test
