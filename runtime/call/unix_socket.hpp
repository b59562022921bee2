#pragma once

#include <string>

#include "runtime/base/result.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// Unix stream sockets in the abstract namespace; all are non-blocking and close on exec.

/// Listens under `name` (1 to 107 bytes, without the leading NUL).
Result<UniqueFd> listen_at(const std::string& name);

/// Connects to the listener of that name. Errors: peer_died if nobody listens; resource_exhausted
/// if its queue of new connections is full; permission_denied if it has another uid.
Result<UniqueFd> connect_to(const std::string& name);

/// Returns permission_denied unless the other end has our effective uid.
Result<void> check_peer_uid(int socket);

}  // namespace troupe
