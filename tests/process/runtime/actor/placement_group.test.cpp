#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/runtime/actor/test_actors.hpp"

namespace troupe::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::unique_ptr<Cluster> two_nodes() {
  ClusterOptions options;
  options.nodes = {{"left", 4, {0, 1, 2}}, {"right", 4, {4, 5, 7}}};
  return start_cluster(std::move(options));
}

/// Waits for the end of an actor.
ActorDown end_of(Cluster& cluster, const ActorHandle<Insider>& actor) {
  Promise<ActorDown> told;
  const auto token = cluster.watch(actor, [told](const ActorDown& down) { told.complete(down); });
  return must(told.future().get(limit));
}

ActorHandle<Insider> spawn(Cluster& cluster, const BundleId& bundle, Resources resources = {}) {
  return must(
      cluster.spawn<Insider>({.resources = std::move(resources), .bundle = bundle}).get(limit));
}

TEST(PlacementGroup, gives_its_actors_the_node_and_devices_of_their_bundles) {
  const auto cluster = two_nodes();
  const auto group = must(cluster->create_placement_group(
      {"x", {{.cpus = 2, .devices = 1}, {.devices = 2}}, PlacementStrategy::strict_spread}));
  EXPECT_EQ(group.bundles[1].devices, (std::vector<int>{4, 5}));
  const auto a = spawn(*cluster, group.bundle(0), {.cpus = 2, .devices = 1});
  const auto b = spawn(*cluster, group.bundle(1), {.devices = 1});
  const auto c = spawn(*cluster, group.bundle(1), {.devices = 1});
  EXPECT_EQ(must(a.call<&Insider::node>().get(limit)), "left");
  EXPECT_EQ(must(a.call<&Insider::devices>().get(limit)), std::vector<int>{0});
  EXPECT_EQ(must(b.call<&Insider::node>().get(limit)), "right");
  EXPECT_EQ(must(b.call<&Insider::devices>().get(limit)), std::vector<int>{4});
  EXPECT_EQ(must(c.call<&Insider::devices>().get(limit)), std::vector<int>{5});

  const auto full =
      cluster->spawn<Insider>({.resources = {.devices = 1}, .bundle = group.bundle(1)}).get(limit);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code, ErrorCode::resource_exhausted);
  EXPECT_THAT(full.error().message, HasSubstr("left there: nothing"));
  const auto outside =
      must(cluster->spawn<Insider>({.resources = {.devices = 1}, .node = "right"}).get(limit));
  EXPECT_EQ(must(outside.call<&Insider::devices>().get(limit)), std::vector<int>{7});
  ASSERT_TRUE(cluster->stop(b).ok());
  EXPECT_EQ(
      must(spawn(*cluster, group.bundle(1), {.devices = 1}).call<&Insider::devices>().get(limit)),
      std::vector<int>{4})
      << "a stopped actor's part is free in its bundle";
}

TEST(PlacementGroup, is_refused_as_a_whole_with_the_reasons) {
  const auto cluster = two_nodes();
  must(cluster->create_placement_group({"x", {{.devices = 2}}, PlacementStrategy::pack}));
  const auto refused = cluster->create_placement_group(
      {"y", {{.cpus = 1}, {.devices = 4}}, PlacementStrategy::pack});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::unschedulable);
  EXPECT_THAT(refused.error().message,
              HasSubstr("bundle 1 (4 devices): 'left' has 1 of 3 devices free (held by placement "
                        "group 'x'), 'right' has 3 of 3 devices free"));
  ASSERT_EQ(cluster->placement_groups().size(), 1U);
  EXPECT_EQ(cluster->placement_groups()[0].name, "x");
  must(cluster->create_placement_group({"z", {{.cpus = 4}, {.cpus = 4}}, PlacementStrategy::pack}));
}

TEST(PlacementGroup, kills_its_actors_when_it_is_removed_and_frees_the_room) {
  const auto cluster = two_nodes();
  const PlacementGroupOptions everything{
      "x", {{.devices = 3}, {.devices = 3}}, PlacementStrategy::strict_spread};
  const auto group = must(cluster->create_placement_group(everything));
  const auto a = spawn(*cluster, group.bundle(0), {.devices = 2});
  const auto b = spawn(*cluster, group.bundle(1));
  const auto bystander = must(cluster->spawn<Insider>({.node = "left"}).get(limit));
  must(cluster->remove_placement_group(group.id));
  EXPECT_THAT(cluster->placement_groups(), IsEmpty());
  EXPECT_EQ(cluster->spawn<Insider>({.bundle = group.bundle(0)}).get(limit).error().code,
            ErrorCode::not_found);
  EXPECT_EQ(end_of(*cluster, a).code, SIGKILL);
  EXPECT_EQ(end_of(*cluster, b).code, SIGKILL);
  EXPECT_TRUE(cluster->create_placement_group(everything).ok());
  EXPECT_TRUE(bystander.call<&Insider::pid>().get(limit).ok());
}

TEST(PlacementGroup, kills_actors_that_have_not_started_yet) {
  const auto cluster = two_nodes();
  const auto group =
      must(cluster->create_placement_group({"x", {{.cpus = 4}}, PlacementStrategy::pack}));
  auto spawning = cluster->spawn<Insider>({.bundle = group.bundle(0)});
  must(cluster->remove_placement_group(group.id));
  const auto spawned = spawning.get(limit);
  if (spawned.ok()) {
    EXPECT_EQ(end_of(*cluster, *spawned).code, SIGKILL);
  } else {
    EXPECT_EQ(spawned.error().code, ErrorCode::actor_died) << spawned.error().message;
  }
  EXPECT_TRUE(cluster->create_placement_group({"x", {{.cpus = 4}}, PlacementStrategy::pack}).ok());
}

TEST(PlacementGroup, loses_the_bundles_of_a_killed_agent_alone) {
  const auto cluster = two_nodes();
  const auto group = must(cluster->create_placement_group(
      {"x", {{.devices = 3}, {.devices = 3}}, PlacementStrategy::strict_spread}));
  const auto other =
      must(cluster->create_placement_group({"y", {{.cpus = 1}}, PlacementStrategy::pack}));
  const auto a = spawn(*cluster, group.bundle(0));
  const auto b = spawn(*cluster, group.bundle(1));
  ASSERT_EQ(::kill(cluster->nodes()[1].agent_pid, SIGKILL), 0);
  EXPECT_EQ(end_of(*cluster, b).cause, DownCause::node_lost);

  const auto refused = cluster->spawn<Insider>({.bundle = group.bundle(1)}).get(limit);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::peer_died);
  EXPECT_EQ(refused.error().message, "bundle 1 of placement group 'x' is lost with node 'right'");
  EXPECT_TRUE(cluster->placement_groups()[0].bundles[1].is_lost);
  EXPECT_TRUE(a.call<&Insider::pid>().get(limit).ok());
  spawn(*cluster, group.bundle(0), {.devices = 3});
  spawn(*cluster, other.bundle(0));
  const auto unplaced =
      cluster->create_placement_group({"z", {{.devices = 1}}, PlacementStrategy::pack});
  EXPECT_THAT(unplaced.error().message, HasSubstr("'right' is lost"));
  must(cluster->remove_placement_group(group.id));
  EXPECT_EQ(end_of(*cluster, a).code, SIGKILL);
}

TEST(PlacementGroup, that_moves_takes_its_restartable_actors_along_to_the_agent_that_comes_again) {
  const auto cluster = two_nodes();
  const auto group = must(cluster->create_placement_group(
      {.name = "x", .bundles = {{.devices = 3}, {.devices = 3}}, .moves = true}));
  const auto actor =
      must(cluster->spawn<Insider>({.bundle = group.bundle(1), .max_restarts = -1}).get(limit));
  Promise<ActorDown> down;
  const auto token = cluster->watch(actor, [down](const ActorDown& end) { down.complete(end); });
  ASSERT_EQ(::kill(cluster->nodes()[1].agent_pid, SIGKILL), 0);
  const ActorDown end = must(down.future().get(limit));
  EXPECT_EQ(end.cause, DownCause::node_lost);
  EXPECT_TRUE(end.restarts);
  EXPECT_EQ(cluster->place_again(group.id).error().code, ErrorCode::resource_exhausted)
      << "the other node is full";
  auto waiting = actor.call<&Insider::pid>();
  cluster->start_lost_nodes();
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!cluster->place_again(group.id).ok() && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
  EXPECT_TRUE(waiting.get(limit).ok()) << "the call has waited for the next incarnation";
  EXPECT_TRUE(cluster->nodes()[1].alive);
}

TEST(PlacementGroup, that_is_removed_ends_the_actors_that_wait_for_a_place) {
  const auto cluster = two_nodes();
  const auto group = must(cluster->create_placement_group(
      {.name = "x", .bundles = {{.devices = 3}, {.devices = 3}}, .moves = true}));
  const auto actor =
      must(cluster->spawn<Insider>({.bundle = group.bundle(1), .max_restarts = -1}).get(limit));
  Promise<ActorDown> lost;
  const auto token = cluster->watch(actor, [lost](const ActorDown& end) { lost.complete(end); });
  ASSERT_EQ(::kill(cluster->nodes()[1].agent_pid, SIGKILL), 0);
  must(lost.future().get(limit));
  auto waiting = actor.call<&Insider::pid>();
  EXPECT_FALSE(waiting.wait(100ms));
  must(cluster->remove_placement_group(group.id));
  const auto ended = waiting.get(limit);
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code, ErrorCode::actor_died) << ended.error().message;
}

}  // namespace
}  // namespace troupe::test
