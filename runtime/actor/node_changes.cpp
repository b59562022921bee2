#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

#include "runtime/actor/node_agents.hpp"

namespace troupe {
namespace {

/// How long the processes of a node that is let go may take to end.
constexpr std::chrono::milliseconds dismiss_limit{500};

}  // namespace

// Nodes that a running cluster lets go, and takes in at their user's wish.

NodeAgents::Node* NodeAgents::place_for(const std::string& name) {
  const auto is_free = [&](const Node& node) {
    return node.agent == 0 && (!node.is_awaited || node.name == name);
  };
  // The first that is of the best kind: a lost node may be there again soon, and so comes last.
  const std::function<bool(const Node&)> kinds[] = {
      [&](const Node& node) { return node.name == name; },
      [](const Node& node) { return node.dismissed; },
      [](const Node& node) { return node.keeper == nullptr; }, [](const Node&) { return true; }};
  for (const auto& is_of_kind : kinds) {
    for (Node& node : nodes_) {
      if (is_free(node) && is_of_kind(node)) return &node;
    }
  }
  return nullptr;
}

Result<void> NodeAgents::start_node(const std::string& name) {
  if (in_process_) return fail(ErrorCode::unsupported, "nodes in one process do not come and go");
  if (options_.join) {
    return fail(ErrorCode::unsupported, "agents join this cluster by themselves");
  }
  const std::lock_guard starts(starts_mutex_);
  std::unique_ptr<NodeKeeper> former;
  std::size_t index = 0;
  {
    std::lock_guard lock(mutex_);
    if (!all_came_ || stopping_) {
      return fail(ErrorCode::unsupported, "the cluster is being started, or ends");
    }
    const auto named = std::ranges::find(nodes_, name, &Node::name);
    if (named != nodes_.end() && named->agent != 0) {
      return fail(ErrorCode::already_exists, "node '{}' is there", name);
    }
    Node* place = place_for(name);
    if (place == nullptr) {
      return fail(ErrorCode::resource_exhausted,
                  "all {} nodes are there, or being started: another one comes only in place of "
                  "one that is lost or drained",
                  nodes_.size());
    }
    index = static_cast<std::size_t>(place - nodes_.data());
    former = std::move(place->keeper);
  }
  if (former) {
    former->signal(SIGKILL);  // it may be starting the lost agent again
    former->join();
  }
  {
    std::lock_guard lock(mutex_);
    Node& node = nodes_[index];
    node.name = name;
    node.over = node.ready = node.welcome = node.suspended = node.dismissed = false;
    node.is_awaited = true;
    node.how.clear();
  }
  start_keeper(index);
  return {};
}

Result<std::size_t> NodeAgents::index_of(const std::string& name) const {
  std::lock_guard lock(mutex_);
  // A lost node may have the name of one that has come since.
  auto found = std::ranges::find_if(
      nodes_, [&](const Node& node) { return node.name == name && is_there(node); });
  if (found == nodes_.end()) found = std::ranges::find(nodes_, name, &Node::name);
  if (found != nodes_.end()) return static_cast<std::size_t>(found - nodes_.begin());
  return fail(ErrorCode::not_found, "no node is named '{}'", name);
}

Result<void> NodeAgents::dismiss(std::size_t index) {
  if (in_process_) return fail(ErrorCode::unsupported, "nodes in one process do not come and go");
  {
    std::lock_guard lock(mutex_);
    Node& node = nodes_[index];
    if (node.agent == 0) {
      return fail(ErrorCode::peer_died, "node '{}' is not there", node.name);
    }
    node.dismissed = true;
  }
  Result<void> sent = send(index, Shutdown{dismiss_limit.count()});
  if (sent.ok()) return {};
  std::lock_guard lock(mutex_);
  nodes_[index].dismissed = false;  // it is lost, not let go
  return sent;
}

}  // namespace troupe
