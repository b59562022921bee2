#include <chrono>

#include "runtime/troupe/answer.hpp"
#include "runtime/troupe/commands.hpp"

namespace troupe {
namespace {

/// The driver hands a node's requests over before it answers, and waits for agents that it starts.
constexpr std::chrono::seconds change_limit{60};

void show(const ReachedCluster& cluster, const StateCommand& command, const ChangeReply& reply) {
  if (command.json) return print_json(cluster.found.file, {{"told", json_of(reply.told)}});
  print(reply.told + "\n");
}

}  // namespace

Result<int> drain_node(const ReachedCluster& cluster, const StateCommand& command) {
  TROUPE_TRY(const auto reply, cluster.client->get<ChangeReply>(
                                   AskDrain{command.node, own_description()}, change_limit));
  show(cluster, command, reply);
  return 0;
}

Result<int> join_hosts(const ReachedCluster& cluster, const StateCommand& command) {
  TROUPE_TRY(const auto reply, cluster.client->get<ChangeReply>(
                                   AskJoin{command.hosts, own_description()}, change_limit));
  show(cluster, command, reply);
  return 0;
}

}  // namespace troupe
