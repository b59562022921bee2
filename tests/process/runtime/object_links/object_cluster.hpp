#pragma once

#include "runtime/node/ssh_node_starter.hpp"
#include "tests/process/runtime/object/object_actors.hpp"
#include "tests/support/hosts/test_hosts.hpp"

namespace troupe::test {

/// Readers of objects on so many nodes, "node1" and so on, which are dealt to the hosts h1, h2 and
/// h3; or all on this machine.
class ObjectCluster {
 public:
  enum class Where { three_hosts, this_machine };

  ObjectCluster(int nodes, Where where) {
    ClusterOptions options;
    SshNodeStarter::Options ssh;
    for (int i = 0; i < nodes; ++i) {
      options.nodes.push_back({fmt::format("node{}", i + 1), 1, {}});
      ssh.host_of_node[options.nodes.back().name] = {host_name(i % 3 + 1)};
    }
    if (where == Where::three_hosts) {
      options.starter = std::make_shared<SshNodeStarter>(std::move(ssh));
      options.address = own_address;
    }
    options.start_timeout = 60s;
    cluster_ = start_cluster(std::move(options));
  }

  Cluster& operator*() { return *cluster_; }
  Cluster* operator->() { return cluster_.get(); }

  ActorHandle<Reader> spawn(int node) {
    return must(cluster_->spawn<Reader>({.node = fmt::format("node{}", node)}).get(limit));
  }
  /// owned, held, shares, pulls, spills, restores
  static std::vector<std::uint64_t> counts_of(const ActorHandle<Reader>& reader) {
    return must(reader.call<&Reader::counts>().get(limit));
  }
  static std::uint64_t owned_by(const ActorHandle<Reader>& reader) { return counts_of(reader)[0]; }
  static std::uint64_t held_by(const ActorHandle<Reader>& reader) { return counts_of(reader)[1]; }
  static std::uint64_t pulls_of(const ActorHandle<Reader>& reader) { return counts_of(reader)[3]; }

 private:
  std::unique_ptr<Cluster> cluster_;
};

}  // namespace troupe::test
