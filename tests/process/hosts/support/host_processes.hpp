#pragma once

#include <string>

namespace troupe::launcher_test {

/// The process of that name and host, "worker-1 on h2"; 0 if there is none.
int process_named(const std::string& process);

/// The agent of the host that `process` runs on; 0 if there is none.
int agent_with(const std::string& process);

}  // namespace troupe::launcher_test
