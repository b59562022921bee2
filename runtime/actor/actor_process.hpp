#pragma once

#include "runtime/actor/actor_types.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// The life of an actor process: reads its ProcessBootstrap from `parent` (the socketpair to its
/// agent), hosts actors as told, answers heartbeats on the main thread, and ends when told or when
/// the agent is gone. Never returns.
[[noreturn]] void run_actor_process(UniqueFd parent, const ActorTypes& types);

}  // namespace troupe
