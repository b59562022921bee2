#include "actors/driver/place_finder.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::test {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr auto limit = 20s;

/// A cluster of two nodes with a bundle on each, whose agents are not let in again before
/// let_in().
class PlaceFinders : public ::testing::Test {
 protected:
  void SetUp() override {
    ClusterOptions options;
    options.nodes = {{"left", 1, {}}, {"right", 1, {}}};
    options.judge_replacement = [this](Cluster&, const JoinedNode&) -> NodeVerdict {
      return {lets_in_ ? NodeVerdict::Kind::welcome : NodeVerdict::Kind::pending};
    };
    auto cluster = Cluster::start(std::move(options));
    ASSERT_TRUE(cluster.ok()) << cluster.error().message;
    cluster_ = *std::move(cluster);
    const auto group = cluster_->create_placement_group({.bundles = {{.cpus = 1}, {.cpus = 1}},
                                                         .strategy = PlacementStrategy::spread,
                                                         .moves = true});
    ASSERT_TRUE(group.ok()) << group.error().message;
    group_ = group->id;
  }
  void kill_agent(std::size_t node) { ::kill(cluster_->nodes().at(node).agent_pid, SIGKILL); }
  /// Looks for so long; false if the finder gives up.
  bool look(PlaceFinder& finder, std::chrono::milliseconds time) const {
    const auto until = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < until) {
      if (const auto found = finder.look(); !found.ok()) return false;
      std::this_thread::sleep_for(20ms);
    }
    return true;
  }

  std::atomic<bool> lets_in_ = false;
  std::unique_ptr<Cluster> cluster_;
  PlacementGroupId group_ = 0;
  std::vector<EngineWait> told_;
};

TEST_F(PlaceFinders, tell_of_a_second_node_and_give_it_the_whole_time) {
  PlaceFinder finder(*cluster_, group_, 0, {.max = 1, .wait_seconds = 3},
                     [this](const EngineWait& wait) { told_.push_back(wait); });
  kill_agent(0);
  ASSERT_TRUE(look(finder, 2s));
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_THAT(told_[0].lost, ElementsAre("left"));
  kill_agent(1);
  ASSERT_TRUE(look(finder, 2s)) << "the second node got only what was left of the first one's time";
  ASSERT_EQ(told_.size(), 2U);
  EXPECT_THAT(told_[1].lost, UnorderedElementsAre("left", "right"));
  lets_in_ = true;
  const auto until = std::chrono::steady_clock::now() + limit;
  while (finder.has_lost_bundles()) {
    ASSERT_LT(std::chrono::steady_clock::now(), until);
    ASSERT_TRUE(look(finder, 50ms));
  }
  ASSERT_EQ(told_.size(), 3U);
  EXPECT_THAT(told_[2].found, UnorderedElementsAre("left", "right"));
}

TEST_F(PlaceFinders, give_up_a_node_after_its_time) {
  PlaceFinder finder(*cluster_, group_, 0, {.max = 1, .wait_seconds = 1}, nullptr);
  kill_agent(0);
  EXPECT_FALSE(look(finder, 10s));
}

TEST_F(PlaceFinders, give_up_soon_once_the_domain_may_be_dropped) {
  std::atomic<bool> may_drop = false;
  PlaceFinder finder(
      *cluster_, group_, 0, {.max = 1, .wait_seconds = 60},
      [this](const EngineWait& wait) { told_.push_back(wait); }, [&] { return may_drop.load(); });
  kill_agent(0);
  ASSERT_TRUE(look(finder, PlaceFinder::drop_after + 500ms)) << "nothing may be dropped yet";
  EXPECT_FALSE(finder.gave_up_early());
  may_drop = true;
  EXPECT_FALSE(look(finder, 1s));
  EXPECT_TRUE(finder.gave_up_early());
  EXPECT_TRUE(told_.empty()) << "others are told of the drop";
}

}  // namespace
}  // namespace troupe::test
