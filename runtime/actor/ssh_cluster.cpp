#include "runtime/actor/ssh_cluster.hpp"

#include <memory>
#include <set>
#include <string>

#include "runtime/link/local_address.hpp"
#include "runtime/node/node_name.hpp"
#include "runtime/node/ssh_node_starter.hpp"
#include "runtime/process/cpu_affinity.hpp"

namespace troupe {

Result<ClusterOptions> ssh_cluster(std::string_view hosts) {
  ClusterOptions options;
  if (hosts.empty()) return options;
  const auto cpus = usable_cpu_count();
  SshNodeStarter::Options ssh;
  std::set<std::string> taken;
  for (std::string_view rest = hosts;;) {
    const auto comma = rest.find(',');
    const std::string destination(rest.substr(0, comma));
    const std::string host = destination.substr(destination.find('@') + 1);
    if (host.empty()) {
      return fail(ErrorCode::invalid_argument, "'{}' has an empty name of a host", hosts);
    }
    if (options.address.empty()) {
      TROUPE_TRY(options.address, local_address_towards(host));
    }
    const std::string node =
        free_node_name(node_name_of(host), [&](const std::string& n) { return taken.contains(n); });
    taken.insert(node);
    options.nodes.push_back({node, cpus, {}});
    ssh.host_of_node[node] = {destination};
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  options.starter = std::make_shared<SshNodeStarter>(std::move(ssh));
  options.start_timeout = std::chrono::seconds(60);  // the program may have to be copied
  return options;
}

}  // namespace troupe
