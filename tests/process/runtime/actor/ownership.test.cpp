#include <gtest/gtest.h>

#include "tests/process/runtime/actor/parent.hpp"

namespace troupe::test {
namespace {

/// Waits for the last end of an actor.
template <class A>
ActorDown end_of(Cluster& cluster, const ActorHandle<A>& actor) {
  Promise<ActorDown> ended;
  const auto token = cluster.watch(actor, [ended](const ActorDown& down) {
    if (!down.restarts) ended.complete(down);
  });
  return must(ended.future().get(limit));
}

/// Spawns a Counter by `parent`.
ActorHandle<Counter> child_of(const ActorHandle<Parent>& parent, const std::string& name = "",
                              int max_restarts = 0) {
  return must(parent.call<&Parent::spawn_counter>(name, 5, false, max_restarts).get(limit));
}

TEST(Ownership, lets_actors_spawn_others_wherever_they_live) {
  const auto cluster = start_cluster();
  const auto remote = must(cluster->spawn<Parent>({}).get(limit));
  const auto local = must(cluster->spawn_local<Parent>({}).get(limit));
  for (const auto& parent : {remote, local}) {
    const auto child = child_of(parent);
    EXPECT_EQ(must(child.call<&Counter::add>(1).get(limit)), 6);
    const int pid = must(child.call<&Counter::pid>().get(limit));
    EXPECT_NE(pid, must(parent.call<&Parent::pid>().get(limit)));
    const auto refused = parent.call<&Parent::spawn_with>(99).get(limit);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::unschedulable) << refused.error().message;
    const auto fragile = parent.call<&Parent::spawn_fragile>("no luck").get(limit);
    ASSERT_FALSE(fragile.ok());
    EXPECT_EQ(fragile.error().code, ErrorCode::corrupt_data);
    EXPECT_NE(fragile.error().message.find("no luck"), std::string::npos);
  }
}

TEST(Ownership, lets_actors_spawn_others_in_a_namespace_that_restarts_keep) {
  const auto cluster = start_cluster();
  const auto parent = must(cluster->spawn<Parent>({}).get(limit));
  const auto plain = child_of(parent, "child");
  const auto green = must(parent.call<&Parent::spawn_in>("green", "child").get(limit));
  EXPECT_NE(plain, green);
  EXPECT_EQ(parent.call<&Parent::spawn_in>("green", "child").get(limit).error().code,
            ErrorCode::already_exists);
  Promise<ActorDown> ended;
  const auto token =
      cluster->watch(green, [ended](const ActorDown& down) { ended.complete(down); });
  ASSERT_TRUE(cluster->kill(green).ok());
  EXPECT_EQ(must(ended.future().get(limit)).name, "green/child");
  EXPECT_EQ(must(green.call<&Counter::add>(1).get(limit)), 8);
  EXPECT_EQ(must(cluster->find<Counter>("child", "green")), green);
  EXPECT_EQ(must(cluster->find<Counter>("child")), plain);
  ASSERT_TRUE(cluster->stop(parent).ok());
  const auto gone = cluster->find<Counter>("child", "green");
  EXPECT_EQ(gone.error().message, "no actor is named 'green/child'") << "names of both are free";
}

TEST(Ownership, ends_with_the_owner_however_that_ends) {
  const auto cluster = start_cluster();
  for (const std::string how : {"killed", "stopped", "exits"}) {
    const auto parent = must(cluster->spawn<Parent>({}).get(limit));
    const auto child = child_of(parent, "child", -1);
    const auto grandparent = must(parent.call<&Parent::spawn_parent>().get(limit));
    const auto grandchild = child_of(grandparent);
    const auto beside = must(parent.call<&Parent::spawn_beside>("shared").get(limit));
    const auto stranger = must(cluster->spawn<Counter>({.process = "shared"}, 7).get(limit));
    const auto detached = must(parent.call<&Parent::spawn_counter>("", 5, true, 0).get(limit));
    const auto ended = how == "killed"    ? cluster->kill(parent)
                       : how == "stopped" ? cluster->stop(parent)
                                          : parent.call<&Parent::leave>().get(limit);
    ASSERT_TRUE(ended.ok()) << how;
    EXPECT_FALSE(end_of(*cluster, parent).restarts);
    EXPECT_FALSE(end_of(*cluster, child).restarts) << how;
    end_of(*cluster, grandchild);
    end_of(*cluster, beside);
    EXPECT_EQ(must(stranger.call<&Counter::add>(0).get(limit)), 7) << "only shares a process";
    EXPECT_EQ(must(detached.call<&Counter::add>(0).get(limit)), 5) << how;
    EXPECT_EQ(child.call<&Counter::pid>().get(limit).error().code, ErrorCode::actor_died);
  }
}

TEST(Ownership, is_of_an_incarnation_whose_names_are_free_for_the_next) {
  const auto cluster = start_cluster();
  const auto parent = must(cluster->spawn<Parent>({.max_restarts = -1}).get(limit));
  for (int life = 0; life < 2; ++life) {
    const auto child = child_of(parent, "child");
    EXPECT_EQ(must(cluster->find<Counter>("child")), child);
    Promise<void> died;
    const auto token =
        cluster->watch(parent, [died](const ActorDown&) { died.complete(Result<void>()); });
    ASSERT_TRUE(cluster->kill(parent).ok());
    ASSERT_TRUE(died.future().get(limit).ok());
    const auto next = child_of(parent, "child");
    EXPECT_NE(next, child);
    end_of(*cluster, child);
    EXPECT_EQ(must(next.call<&Counter::add>(0).get(limit)), 5);
    parent.call<&Parent::stop>(next);
    end_of(*cluster, next);
  }
}

TEST(Ownership, lets_an_actor_end_its_own_and_no_others) {
  const auto cluster = start_cluster();
  const auto parent = must(cluster->spawn<Parent>({}).get(limit));
  const auto other = must(cluster->spawn<Counter>({}, 3).get(limit));
  const auto child = child_of(parent);
  ASSERT_TRUE(parent.call<&Parent::stop>(other).get(limit).ok());
  ASSERT_TRUE(parent.call<&Parent::stop>(child).get(limit).ok());
  EXPECT_EQ(end_of(*cluster, child).cause, DownCause::stopped);
  EXPECT_EQ(must(other.call<&Counter::add>(0).get(limit)), 3);
}

}  // namespace
}  // namespace troupe::test
