#pragma once

#include <string>

namespace troupe {

/// What the kernel says a process does: "state D (disk sleep), in rpc_wait_bit_killable", with who
/// traces it if somebody does. "no such process" if there is none.
std::string describe_process_state(int pid);

}  // namespace troupe
