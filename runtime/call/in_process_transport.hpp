#pragma once

#include <memory>
#include <string>

#include "runtime/call/transport.hpp"

namespace troupe {

/// The transport of a cluster that is one process: it leads nowhere, has no socket, and runs what
/// is due on its thread.
std::unique_ptr<Transport> make_in_process_transport(std::string name);

}  // namespace troupe
