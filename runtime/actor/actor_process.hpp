#pragma once

#include "runtime/actor/actor_types.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// Runs an actor process: reads its ProcessBootstrap from `parent` (the socketpair to its agent),
/// hosts the actors it is sent, answers heartbeats on the main thread, and ends when told to or
/// when the agent is gone. Never returns.
[[noreturn]] void run_actor_process(UniqueFd parent, const ActorTypes& types);

}  // namespace troupe
