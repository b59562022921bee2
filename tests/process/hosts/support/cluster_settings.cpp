#include "tests/process/hosts/support/cluster_settings.hpp"

#include <fmt/format.h>

#include "tests/support/hosts/test_hosts.hpp"

namespace troupe::launcher_test {

std::vector<std::string> on_hosts(int hosts, int workers_each) {
  std::string names;
  for (int i = 1; i <= hosts; ++i) {
    names += fmt::format("{}{}", i > 1 ? ", " : "", test::host_name(i));
  }
  return {"cluster.launch=ssh", "cluster.hosts=[" + names + "]",
          fmt::format("cluster.devices_per_node={}", workers_each)};
}

std::vector<std::string> joined_by(int nodes, double timeout_seconds) {
  return {"cluster.launch=join", fmt::format("cluster.listen={}", listen_at),
          fmt::format("cluster.nodes={}", nodes), "cluster.token_file=job.token",
          fmt::format("cluster.join_timeout={}", timeout_seconds)};
}

}  // namespace troupe::launcher_test
