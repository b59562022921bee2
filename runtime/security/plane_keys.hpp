#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/security/job_secret.hpp"

namespace troupe {

// The keys that an agent gives to the actor processes of its node: never the job's secret, only
// keys from which no other can be computed.

/// What a process has on the call plane: its name, and keys from which only its own can be
/// computed.
struct CallKeys {
  using Answer = std::function<void(Result<Key>)>;

  std::string name;    ///< the name of its unix socket, on TLS links too
  SecretKey listener;  ///< its call_listener_key()
  /// Obtains the key with which it connects to the process named `listener`, and calls `answer`
  /// with it, at once or later on any thread.
  std::function<void(const std::string& listener, Answer answer)> ask;
};

/// The keys of a process that holds the job's secret.
CallKeys call_keys(const JobKeys& keys, const std::string& name);

/// Draws a name for a process on the call plane that nobody can guess: "troupe-JOB-...".
Result<std::string> draw_call_name(std::string_view job_id);

/// The key of the process that listens under `name`. Its holder can compute the keys of all who
/// connect to it, and none of another pair.
Key call_listener_key(const JobKeys& keys, std::string_view name);
/// The key with which the process named `connector` connects to the listener that has this key.
/// Both, and the agents, know it; nobody else does.
Key call_pair_key(const Key& listener, std::string_view connector);

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
