#pragma once

#include <span>

#include "runtime/actor/actor_down.hpp"

namespace troupe {

/// Returns the end that is nearest to the cause, among those that were reported together: one death
/// causes others. At least one.
const ActorDown& cause_of(std::span<const ActorDown> downs);

/// True if `down` follows from `cause`, which was reported with it: it ended with the same node, or
/// in reaction to what happened elsewhere.
bool is_consequence(const ActorDown& down, const ActorDown& cause);

/// True if these ends began inside a process of theirs: it ended by a signal of its own, by a code,
/// or with an error. Not for what was done to a process: SIGKILL, or the loss of its node.
bool began_inside(std::span<const ActorDown> downs);

}  // namespace troupe
