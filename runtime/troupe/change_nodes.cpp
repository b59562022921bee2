#include <algorithm>
#include <chrono>

#include <fmt/ranges.h>

#include "runtime/base/deadline.hpp"
#include "runtime/base/terminal_text.hpp"
#include "runtime/node/slurm_node_starter.hpp"
#include "runtime/troupe/answer.hpp"
#include "runtime/troupe/ask_pages.hpp"
#include "runtime/troupe/commands.hpp"

namespace troupe {
namespace {

/// The driver hands a node's requests over before it answers, and waits for agents that it starts.
constexpr std::chrono::seconds change_limit{60};
/// How often it is looked at whether nodes are still needed.
constexpr std::chrono::seconds look_interval{2};
/// A node that is lost may be there again.
constexpr std::chrono::seconds lost_limit{60};

/// Asks for a change and prints what has been done.
template <class Ask>
Result<void> change(const ReachedCluster& cluster, const StateCommand& command, const Ask& ask) {
  TROUPE_TRY(const auto reply, cluster.client->get<ChangeReply>(ask, change_limit));
  if (command.json) {
    print_json(cluster.found.file, {{"told", json_of(reply.told)}});
  } else {
    print(reply.told + "\n");
  }
  return {};
}

std::vector<NodeState> nodes_named(const std::vector<NodeState>& all,
                                   const std::vector<std::string>& names) {
  std::vector<NodeState> found;
  std::ranges::copy_if(all, std::back_inserter(found), [&](const NodeState& node) {
    return std::ranges::find(names, node.name) != names.end();
  });
  return found;
}

bool has(const std::vector<NodeState>& nodes, NodeState::Life life) {
  return std::ranges::find(nodes, life, &NodeState::life) != nodes.end();
}

/// An allocation ends with what runs in it: waits until the cluster has ended, or needs none of
/// these nodes any more. Returns the exit status.
Result<int> stay(const ReachedCluster& cluster, const std::vector<std::string>& names) {
  std::fprintf(stderr, "%s\n",
               paragraph(fmt::format("{} stay{} as long as {} runs", fmt::join(names, ", "),
                                     names.size() == 1 ? "s" : "", describe(cluster.found.file)),
                         terminal_columns())
                   .c_str());
  Deadline lost(lost_limit);
  while (!cluster.client->wait_until_closed(look_interval)) {
    const auto all = ask_nodes(*cluster.client);
    if (!all.ok()) continue;  // it ends, or is busy
    const auto ours = nodes_named(*all, names);
    if (has(ours, NodeState::Life::alive) || has(ours, NodeState::Life::awaited)) {
      lost = Deadline(lost_limit);
    } else if (!has(ours, NodeState::Life::lost)) {
      return 0;  // drained, or others have come in their place
    } else if (lost.is_over()) {
      return fail(ErrorCode::peer_died, "{} {} lost", fmt::join(names, ", "),
                  names.size() == 1 ? "is" : "are");
    }
  }
  return 0;
}

}  // namespace

Result<int> drain_node(const ReachedCluster& cluster, const StateCommand& command) {
  TROUPE_CHECK(change(cluster, command, AskDrain{command.node, own_description()}));
  return 0;
}

Result<int> join_hosts(const ReachedCluster& cluster, const StateCommand& command) {
  AskJoin ask{command.hosts, own_description(), slurm_job(), {}};
  if (!ask.slurm_job.empty()) {
    // Without Slurm's programs this is asked as outside of an allocation.
    auto nodes = slurm_nodes();
    if (nodes.ok()) ask.slurm_nodes = *std::move(nodes);
    if (!nodes.ok()) ask.slurm_job.clear();
  }
  TROUPE_CHECK(change(cluster, command, ask));
  if (ask.slurm_nodes.empty() || !command.stays) return 0;
  TROUPE_TRY(const auto all, ask_nodes(*cluster.client));
  std::vector<std::string> ours;
  for (const NodeState& node : nodes_named(all, ask.slurm_nodes)) {
    if (node.life == NodeState::Life::alive) ours.push_back(node.name);
  }
  return ours.empty() ? Result<int>(0) : stay(cluster, ours);
}

}  // namespace troupe
