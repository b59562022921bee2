#pragma once

#include <string_view>

#include "runtime/base/result.hpp"
#include "runtime/security/job_secret.hpp"

namespace troupe {

// The keys that an agent gives to the actor processes of its node: never the job's secret, only
// keys from which no other can be computed.

/// The key by which all actors of a job authenticate each other on the call plane.
Key call_plane_key(const JobKeys& keys);

/// The key for a channel of two actors that agree on `purpose`, say "steps of replica 0, epoch 3".
/// Any actor of the job may ask for any purpose; no purpose gives a key of the control plane or of
/// the call plane. Errors: invalid_argument for a purpose that is empty or above 256 bytes.
Result<Key> channel_key(const JobKeys& keys, std::string_view purpose);

/// Hides the memory of this process, which holds the job's secret, from core dumps and from other
/// processes of the same user (PR_SET_DUMPABLE). For driver and agents; actor processes hold
/// nothing secret enough to forbid a debugger.
void forbid_dumps();

}  // namespace troupe
