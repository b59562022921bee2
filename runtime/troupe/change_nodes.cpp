#include <chrono>

#include "runtime/troupe/answer.hpp"
#include "runtime/troupe/commands.hpp"

namespace troupe {
namespace {

/// The driver hands a node's requests over before it answers, and waits for agents that it starts.
constexpr std::chrono::seconds change_limit{60};

/// Asks for a change and prints what has been done.
template <class Ask>
Result<int> change(const ReachedCluster& cluster, const StateCommand& command, const Ask& ask) {
  TROUPE_TRY(const auto reply, cluster.client->get<ChangeReply>(ask, change_limit));
  if (command.json) {
    print_json(cluster.found.file, {{"told", json_of(reply.told)}});
  } else {
    print(reply.told + "\n");
  }
  return 0;
}

}  // namespace

Result<int> drain_node(const ReachedCluster& cluster, const StateCommand& command) {
  return change(cluster, command, AskDrain{command.node, own_description()});
}

Result<int> join_hosts(const ReachedCluster& cluster, const StateCommand& command) {
  return change(cluster, command, AskJoin{command.hosts, own_description()});
}

}  // namespace troupe
