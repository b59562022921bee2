#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/security/job_secret.hpp"

namespace troupe {

// The keys that an agent gives to the actor processes of its node: never the job's secret, only
// keys from which no other can be computed.

/// The key by which all actors of a job authenticate each other on the call plane.
Key call_plane_key(const JobKeys& keys);

/// Some channels of actors: what they are for, and whose they are.
struct ChannelScope {
  std::string purpose;               ///< 1 to 256 bytes, say "steps of replica 0, epoch 3"
  std::vector<std::string> members;  ///< the actors' names; their order does not matter

  template <class Archive>
  void fields(Archive& archive) {
    archive(purpose, members);
  }
};

/// The key for channels of this scope, if `asker` is one of the members. Other members or another
/// purpose give another key, and none gives one of the control plane or the call plane. Errors:
/// permission_denied for any other asker; invalid_argument for a purpose that is empty or too long.
Result<Key> channel_key(const JobKeys& keys, std::string_view asker, const ChannelScope& scope);

/// Hides the memory of this process, which holds the job's secret, from core dumps and from other
/// processes of the same user (PR_SET_DUMPABLE). For driver and agents; actor processes hold
/// nothing secret enough to forbid a debugger.
void forbid_dumps();

}  // namespace troupe
