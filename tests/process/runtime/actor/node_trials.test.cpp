#include <csignal>

#include <gtest/gtest.h>

#include "tests/process/runtime/actor/test_actors.hpp"

namespace troupe::test {
namespace {

/// Has the agents of lost nodes started until `is_done`.
template <class Done>
bool start_lost_until(Cluster& cluster, Done is_done) {
  Deadline deadline(limit);
  while (!is_done()) {
    if (deadline.is_over()) return false;
    cluster.start_lost_nodes();
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

TEST(NodeTrials, tell_an_agent_that_dies_meanwhile_as_lost_and_not_as_refused) {
  std::atomic<int> trials = 0;
  ClusterOptions options;
  options.nodes = {{"only", 1, {}}};
  options.judge_replacement = [&](Cluster& cluster, const JoinedNode& node) -> NodeVerdict {
    if (++trials > 1) return {};
    ::kill(cluster.nodes().at(node.index).agent_pid, SIGKILL);
    return {NodeVerdict::Kind::refused, "its probe has died"};
  };
  const auto cluster = must(Cluster::start(std::move(options)));
  ::kill(cluster->nodes().at(0).agent_pid, SIGKILL);
  ASSERT_TRUE(start_lost_until(*cluster, [&] { return trials == 2; }));
  EXPECT_TRUE(cluster->refused_nodes().empty()) << cluster->refused_nodes().front();
  // The second one is welcome, so that it gets actors which do not name it.
  ASSERT_TRUE(start_lost_until(*cluster, [&] {
    return cluster->spawn<Counter>({.resources = {.cpus = 1}}, 0).get(limit).ok();
  }));
}

TEST(NodeTrials, tell_a_node_that_is_refused) {
  std::atomic<int> trials = 0;
  ClusterOptions options;
  options.nodes = {{"only", 1, {}}};
  options.judge_replacement = [&](Cluster&, const JoinedNode&) -> NodeVerdict {
    ++trials;
    return {NodeVerdict::Kind::refused, "it is too small"};
  };
  const auto cluster = must(Cluster::start(std::move(options)));
  ::kill(cluster->nodes().at(0).agent_pid, SIGKILL);
  ASSERT_TRUE(start_lost_until(*cluster, [&] { return !cluster->refused_nodes().empty(); }));
  EXPECT_EQ(cluster->refused_nodes(), std::vector<std::string>{"only: it is too small"});
}

}  // namespace
}  // namespace troupe::test
