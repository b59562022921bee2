#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>

#include <unistd.h>

#include "runtime/actor/cluster.hpp"
#include "runtime/node/ssh_node_starter.hpp"
#include "tests/support/hosts/test_hosts.hpp"

namespace troupe::test {

using namespace std::chrono_literals;

inline constexpr auto limit = 30s;

/// Tells where it lives, and talks to others of its kind.
class Inhabitant {
 public:
  explicit Inhabitant(ActorContext& context) : context_(context) {}

  std::string host() {
    std::array<char, 64> name{};
    ::gethostname(name.data(), name.size() - 1);
    return name.data();
  }
  std::string node() { return context_.node(); }
  std::string address() { return context_.node_address(); }
  int pid() { return ::getpid(); }
  std::string echo(const std::string& text) { return text; }
  /// What `other` says its host is.
  Result<std::string> host_of(const ActorHandle<Inhabitant>& other) {
    return other.call<&Inhabitant::host>().get(limit);
  }
  Result<std::string> host_of_named(const std::string& name) {
    TROUPE_TRY(const auto other, context_.find<Inhabitant>(name));
    return host_of(other);
  }
  /// What a watch says of the end of `other`.
  Result<std::string> end_of(const ActorHandle<Inhabitant>& other) {
    Promise<std::string> told;
    const auto token =
        context_.watch(other, [told](const ActorDown& down) { told.complete(down.message); });
    return told.future().get(limit);
  }

  static constexpr std::string_view actor_type = "Inhabitant";
  using Methods = troupe::Methods<&Inhabitant::host, &Inhabitant::node, &Inhabitant::address,
                                  &Inhabitant::pid, &Inhabitant::echo, &Inhabitant::host_of,
                                  &Inhabitant::host_of_named, &Inhabitant::end_of>;

 private:
  ActorContext& context_;
};

/// Nodes "node1", "node2", ... on the hosts h1, h2, ..., over ssh.
inline ClusterOptions options_of_hosts(int count) {
  ClusterOptions options;
  SshNodeStarter::Options ssh;
  for (int i = 1; i <= count; ++i) {
    options.nodes.push_back({fmt::format("node{}", i), 2, {}});
    ssh.host_of_node[options.nodes.back().name] = {host_name(i)};
  }
  options.starter = std::make_shared<SshNodeStarter>(std::move(ssh));
  options.address = own_address;
  options.start_timeout = 20s;
  return options;
}

inline std::unique_ptr<Cluster> start_cluster(ClusterOptions options) {
  auto cluster = Cluster::start(std::move(options));
  if (!cluster.ok()) throw std::runtime_error(cluster.error().message);
  return *std::move(cluster);
}

template <class T>
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().message);
  return *std::move(result);
}

}  // namespace troupe::test
