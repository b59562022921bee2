#pragma once

#include <string>
#include <vector>

namespace troupe::launcher_test {

/// Where a launcher of the tests listens for nodes that join: this machine, in a namespace of its
/// own.
inline constexpr const char* listen_at = "10.77.0.254:7070";

/// Values of --set that run a job on the first `hosts` hosts by ssh, with so many workers on each.
std::vector<std::string> on_hosts(int hosts, int workers_each);

/// Values of --set that let `nodes` nodes join the job at listen_at with job.token.
std::vector<std::string> joined_by(int nodes, double timeout_seconds = 60);

}  // namespace troupe::launcher_test
