#include "launcher/job/node_join.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/job/cluster_nodes.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/node/node_name.hpp"
#include "runtime/node/ssh_node_starter.hpp"

namespace troupe {
namespace {

/// For an agent to be started over ssh; a copy of the program goes on after that.
constexpr std::chrono::seconds come_limit{15};
constexpr std::chrono::milliseconds look_interval{50};

/// Waits until `deadline` for an agent that is being started. Errors: why it has not come.
Result<void> wait_for(Cluster& cluster, const std::string& node, Deadline& deadline) {
  std::string why = "it is being started";
  while (!deadline.is_over()) {
    for (const Cluster::NodeInfo& info : cluster.nodes()) {
      if (info.spec.name != node) continue;
      if (info.alive) return {};
      if (!info.lost_because.empty()) why = info.lost_because;
    }
    std::this_thread::sleep_for(look_interval);
  }
  return fail(ErrorCode::timeout,
              "node '{}' has not come within {} s, and is tried again as long as a place is free: "
              "{}; see its agent's log",
              node, come_limit.count(), why);
}

std::vector<std::string> drained_nodes(const Cluster& cluster) {
  std::vector<std::string> names;
  for (const Cluster::NodeInfo& info : cluster.nodes()) {
    if (info.lost_because == "was drained") names.push_back(info.spec.name);
  }
  return names;
}

}  // namespace

bool is_alive(const Cluster& cluster, const std::string& node) {
  return std::ranges::any_of(cluster.nodes(), [&](const Cluster::NodeInfo& info) {
    return info.spec.name == node && info.alive;
  });
}

Result<std::string> join_nodes(Cluster& cluster, const JobPlan& plan,
                               const std::string& join_command,
                               const std::vector<std::string>& hosts) {
  const std::string& launch = plan.config.cluster.launch;
  if (launch == "join") return "on each node that is to join run:\n  " + join_command;
  const auto ssh = std::dynamic_pointer_cast<SshNodeStarter>(plan.cluster.starter);
  if (!ssh) {
    return fail(ErrorCode::unsupported,
                "a job with cluster.launch: {} takes no hosts in; ssh and join do", launch);
  }
  std::vector<std::string> nodes;
  std::vector<HostEntry> entries;  // of `hosts`
  if (hosts.empty()) nodes = drained_nodes(cluster);
  for (const std::string& text : hosts) {
    TROUPE_TRY(entries.emplace_back(), parse_host(text));
    const std::string node = node_name_of(entries.back().name);
    if (std::ranges::find(nodes, node) != nodes.end()) {
      return fail(ErrorCode::invalid_argument, "host {} is named twice", text);
    }
    if (is_alive(cluster, node)) return fail(ErrorCode::already_exists, "node '{}' is there", node);
    nodes.push_back(node);
  }
  if (nodes.empty()) return fail(ErrorCode::invalid_argument, "no node was drained: name hosts");
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (i < entries.size()) ssh->set_host(nodes[i], std::move(entries[i].ssh));
    TROUPE_CHECK(cluster.start_node(nodes[i]));
  }
  Deadline deadline(come_limit);
  for (const std::string& node : nodes) TROUPE_CHECK(wait_for(cluster, node, deadline));
  return fmt::format("{} {} come", fmt::join(nodes, ", "), nodes.size() == 1 ? "has" : "have");
}

}  // namespace troupe
