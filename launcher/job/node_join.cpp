#include "launcher/job/node_join.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/job/cluster_nodes.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/node/node_name.hpp"
#include "runtime/node/slurm_node_starter.hpp"
#include "runtime/node/ssh_node_starter.hpp"

namespace troupe {
namespace {

/// For an agent to be started; a copy of the program goes on after that.
constexpr std::chrono::seconds come_limit{15};
constexpr std::chrono::milliseconds look_interval{50};

/// Waits until `deadline` for an agent that is being started. Errors: why it has not come.
Result<void> wait_for(Cluster& cluster, const std::string& node, Deadline& deadline,
                      const KeepGoing& keep_going) {
  std::string why = "it is being started";
  while (!deadline.is_over()) {
    for (const Cluster::NodeInfo& info : cluster.nodes()) {
      if (info.spec.name != node) continue;
      if (info.alive) return {};
      if (!info.lost_because.empty()) why = info.lost_because;
    }
    if (!keep_going()) return fail(ErrorCode::cancelled, "the job ends");
    std::this_thread::sleep_for(look_interval);
  }
  return fail(ErrorCode::timed_out,
              "node '{}' has not come within {} s, and is tried again as long as a place is free: "
              "{}; see its agent's log",
              node, come_limit.count(), why);
}

std::vector<std::string> drained_nodes(const Cluster& cluster) {
  std::vector<std::string> names;
  for (const Cluster::NodeInfo& info : cluster.nodes()) {
    if (info.was_drained) names.push_back(info.spec.name);
  }
  return names;
}

bool is_one_of(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

/// The nodes of the hosts, which the starter knows from here on.
Result<std::vector<std::string>> nodes_of_hosts(SshNodeStarter& ssh, const Cluster& cluster,
                                                const std::vector<std::string>& hosts) {
  std::vector<std::string> nodes;
  std::vector<HostEntry> entries;  // of `hosts`
  for (const std::string& text : hosts) {
    TROUPE_TRY(entries.emplace_back(), parse_host(text));
    std::string node = node_name_of(entries.back().name);
    if (is_one_of(nodes, node)) {
      return fail(ErrorCode::invalid_argument, "host {} is named twice", text);
    }
    if (is_alive(cluster, node)) return fail(ErrorCode::already_exists, "node '{}' is there", node);
    nodes.push_back(std::move(node));
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) ssh.set_host(nodes[i], std::move(entries[i].ssh));
  return nodes;
}

/// The nodes of the allocation that the request is from, or the named ones of them and of the job's
/// own; the starter knows from here on in which of the two they are.
Result<std::vector<std::string>> nodes_of_allocation(SlurmNodeStarter& slurm,
                                                     const Cluster& cluster, const JobPlan& plan,
                                                     const JoinRequest& request) {
  const auto& own = plan.config.cluster.hosts;
  const bool is_other = request.slurm_job != slurm_job();
  std::vector<std::string> nodes;
  for (const std::string& name : request.hosts) {
    if (!is_one_of(request.slurm_nodes, name) && !is_one_of(own, name)) {
      return fail(
          ErrorCode::invalid_argument,
          "node '{}' is neither of the job's allocation nor of the one that this is run in: "
          "run `launcher join` in an allocation with it",
          name);
    }
    if (is_alive(cluster, name)) return fail(ErrorCode::already_exists, "node '{}' is there", name);
    if (!is_one_of(nodes, name)) nodes.push_back(name);
  }
  if (request.hosts.empty() && is_other) nodes = request.slurm_nodes;
  std::erase_if(nodes, [&](const std::string& node) { return is_alive(cluster, node); });
  if (nodes.empty() && request.hosts.empty() && is_other && !request.slurm_nodes.empty()) {
    return fail(ErrorCode::already_exists, "all nodes of Slurm's job {} are there",
                request.slurm_job);
  }
  for (const std::string& node : nodes) {
    if (node_name_of(node) != node) {
      return fail(ErrorCode::invalid_argument, "'{}' is no name of a node", node);
    }
    const bool is_its = is_other && is_one_of(request.slurm_nodes, node);
    slurm.set_job(node, is_its ? request.slurm_job : "");
  }
  return nodes;
}

/// Starts agents on the nodes, and waits for them.
Result<std::string> start_nodes(Cluster& cluster, const std::vector<std::string>& nodes,
                                const KeepGoing& keep_going) {
  std::vector<std::string> begun;
  std::string refused;
  for (const std::string& node : nodes) {
    const Result<void> begins = cluster.start_node(node);
    if (begins.ok()) {
      begun.push_back(node);
    } else if (begun.empty()) {
      return begins.error();
    } else {
      refused += fmt::format("; not '{}': {}", node, begins.error().message);
    }
  }
  Deadline deadline(come_limit);
  for (const std::string& node : begun) {
    TROUPE_CHECK(wait_for(cluster, node, deadline, keep_going));
  }
  return fmt::format("{} {} come{}", fmt::join(begun, ", "), begun.size() == 1 ? "has" : "have",
                     refused);
}

}  // namespace

bool is_alive(const Cluster& cluster, const std::string& node) {
  return std::ranges::any_of(cluster.nodes(), [&](const Cluster::NodeInfo& info) {
    return info.spec.name == node && info.alive;
  });
}

Result<std::string> join_nodes(Cluster& cluster, const JobPlan& plan,
                               const std::string& join_command, const JoinRequest& request,
                               const KeepGoing& keep_going) {
  const std::string& launch = plan.config.cluster.launch;
  if (launch == "join") return "on each node that is to join run:\n  " + join_command;
  std::vector<std::string> nodes;
  const auto starter = plan.cluster.starter;
  if (const auto ssh = std::dynamic_pointer_cast<SshNodeStarter>(starter)) {
    TROUPE_TRY(nodes, nodes_of_hosts(*ssh, cluster, request.hosts));
  } else if (const auto slurm = std::dynamic_pointer_cast<SlurmNodeStarter>(starter)) {
    TROUPE_TRY(nodes, nodes_of_allocation(*slurm, cluster, plan, request));
  } else {
    return fail(ErrorCode::unsupported,
                "a job with cluster.launch: {} takes no nodes in; ssh, slurm and join do", launch);
  }
  if (nodes.empty()) nodes = drained_nodes(cluster);
  if (nodes.empty()) {
    return fail(ErrorCode::invalid_argument, "no node was drained: {}",
                launch == "ssh" ? "name hosts" : "run this in another allocation of Slurm");
  }
  return start_nodes(cluster, nodes, keep_going);
}

}  // namespace troupe
