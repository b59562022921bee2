#include <csignal>

#include <gtest/gtest.h>

#include "tests/process/runtime/actor/test_actors.hpp"

namespace troupe::test {
namespace {

/// Collects the ends of one actor.
class Ends {
 public:
  template <class A>
  Ends(Cluster& cluster, const ActorHandle<A>& actor)
      : token_(cluster.watch(actor, [this](const ActorDown& down) {
          std::lock_guard lock(mutex_);
          all_.push_back(down);
          changed_.notify_all();
        })) {}
  /// Waits for so many ends and returns them.
  std::vector<ActorDown> wait_for_count(std::size_t count) {
    std::unique_lock lock(mutex_);
    (void)wait_for(changed_, lock, limit, [&] { return all_.size() >= count; });
    return all_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ActorDown> all_;
  WatchToken token_;
};

/// Kills the process of an actor from outside and returns its pid.
int kill_process(const ActorHandle<Counter>& actor) {
  const int pid = must(actor.call<&Counter::pid>().get(limit));
  EXPECT_EQ(::kill(pid, SIGKILL), 0);
  return pid;
}

TEST(Restarts, keep_id_name_and_handles_and_use_the_arguments_again) {
  const auto cluster = start_cluster();
  const auto counter =
      must(cluster->spawn<Counter>({.name = "phoenix", .max_restarts = -1}, 40).get(limit));
  Ends ends(*cluster, counter);
  EXPECT_EQ(must(counter.call<&Counter::add>(2).get(limit)), 42);
  for (std::uint32_t incarnation = 0; incarnation < 3; ++incarnation) {
    const int pid = kill_process(counter);
    const auto told = ends.wait_for_count(incarnation + 1);
    ASSERT_EQ(told.size(), incarnation + 1);
    EXPECT_EQ(told.back().incarnation, incarnation);
    EXPECT_EQ(told.back().cause, DownCause::signal);
    EXPECT_EQ(told.back().pid, pid);
    EXPECT_TRUE(told.back().restarts);
    EXPECT_NE(told.back().message.find("started again"), std::string::npos) << told.back().message;
    // The death is known, so this call waits for the next incarnation.
    EXPECT_EQ(must(counter.call<&Counter::add>(2).get(limit)), 42) << "it begins anew";
    EXPECT_EQ(must(cluster->find<Counter>("phoenix")), counter);
  }
  const auto infos = cluster->actors();
  const auto found = std::ranges::find(infos, counter.address(), &Cluster::ActorInfo::address);
  ASSERT_NE(found, infos.end());
  EXPECT_EQ(found->address.incarnation, 3U);
}

TEST(Restarts, end_when_they_are_used_up) {
  const auto cluster = start_cluster();
  const auto counter = must(cluster->spawn<Counter>({.max_restarts = 1}, 0).get(limit));
  Ends ends(*cluster, counter);
  kill_process(counter);
  (void)ends.wait_for_count(1);
  kill_process(counter);
  const auto told = ends.wait_for_count(2);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_TRUE(told[0].restarts);
  EXPECT_FALSE(told[1].restarts);
  const auto dead = counter.call<&Counter::pid>().get(limit);
  ASSERT_FALSE(dead.ok());
  EXPECT_EQ(dead.error().message, told[1].message);
}

TEST(Restarts, fail_the_calls_under_way_and_never_run_them_twice) {
  const auto cluster = start_cluster();
  const auto recorder = must(cluster->spawn<Recorder>({.max_restarts = 1}).get(limit));
  auto blocked = recorder.call<&Recorder::block_for_ms>(60000);
  auto queued = recorder.call<&Recorder::record>(7);
  EXPECT_FALSE(blocked.wait(100ms));
  ASSERT_TRUE(cluster->kill(recorder).ok());
  for (auto* call : {&blocked, &queued}) {
    const auto lost = call->get(limit);
    ASSERT_FALSE(lost.ok());
    EXPECT_EQ(lost.error().code, ErrorCode::actor_unavailable);
    EXPECT_NE(lost.error().message.find("SIGKILL"), std::string::npos) << lost.error().message;
  }
  EXPECT_TRUE(must(recorder.call<&Recorder::numbers>().get(limit)).empty());
}

TEST(Restarts, are_followed_by_the_handles_of_other_actors) {
  const auto cluster = start_cluster();
  const auto counter = must(cluster->spawn<Counter>({.max_restarts = -1}, 0).get(limit));
  const auto early = must(cluster->spawn<Insider>({}).get(limit));
  EXPECT_EQ(must(early.call<&Insider::add_through>(counter, 5).get(limit)), 5);
  Ends ends(*cluster, counter);
  kill_process(counter);
  (void)ends.wait_for_count(1);
  EXPECT_EQ(must(counter.call<&Counter::add>(0).get(limit)), 0);
  EXPECT_EQ(must(early.call<&Insider::add_through>(counter, 6).get(limit)), 6);
  // This handle is as old as the first incarnation, but the process has never called the actor.
  const auto late = must(cluster->spawn<Insider>({}).get(limit));
  EXPECT_EQ(must(late.call<&Insider::add_through>(counter, 7).get(limit)), 13);
  const auto beside = must(cluster->spawn<Insider>({}).get(limit));
  EXPECT_EQ(must(beside.call<&Insider::add_through>(counter, 1).get(limit)), 14)
      << "another process of that node follows it already";
}

TEST(Restarts, move_to_another_node_when_theirs_is_lost) {
  ClusterOptions options;
  options.nodes = {{"left", 1, {3}}, {"right", 1, {4}}};
  const auto cluster = start_cluster(std::move(options));
  const auto insider =
      must(cluster->spawn<Insider>({.resources = {.cpus = 1, .devices = 1}, .max_restarts = 1})
               .get(limit));
  EXPECT_EQ(must(insider.call<&Insider::node>().get(limit)), "left");
  const auto bound =
      must(cluster->spawn<Counter>({.node = "left", .max_restarts = -1}, 0).get(limit));
  Ends ends(*cluster, insider), ends_of_bound(*cluster, bound);
  ASSERT_EQ(::kill(cluster->nodes()[0].agent_pid, SIGKILL), 0);
  EXPECT_EQ(ends.wait_for_count(1).at(0).cause, DownCause::node_lost);
  EXPECT_EQ(must(insider.call<&Insider::node>().get(limit)), "right");
  EXPECT_EQ(must(insider.call<&Insider::devices>().get(limit)), std::vector<int>{4});
  const auto over = ends_of_bound.wait_for_count(2);
  ASSERT_EQ(over.size(), 2U);
  EXPECT_EQ(over[1].cause, DownCause::not_restarted);
  EXPECT_NE(over[1].message.find("'left' is lost"), std::string::npos) << over[1].message;
  EXPECT_EQ(bound.call<&Counter::pid>().get(limit).error().code, ErrorCode::actor_died);
}

TEST(Restarts, do_not_follow_a_stop) {
  const auto cluster = start_cluster();
  const auto counter = must(cluster->spawn<Counter>({.max_restarts = -1}, 0).get(limit));
  Ends ends(*cluster, counter);
  ASSERT_TRUE(cluster->stop(counter).ok());
  const auto told = ends.wait_for_count(1);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].cause, DownCause::stopped);
  EXPECT_FALSE(told[0].restarts);
  // An actor that does not end in time is killed, and does not come back from that either.
  const auto busy = must(cluster->spawn<Recorder>({.max_restarts = -1}).get(limit));
  Ends busy_ends(*cluster, busy);
  EXPECT_FALSE(busy.call<&Recorder::block_for_ms>(60000).wait(100ms));
  EXPECT_EQ(cluster->stop(busy, 100ms).error().code, ErrorCode::timed_out);
  const auto killed = busy_ends.wait_for_count(1);
  ASSERT_EQ(killed.size(), 1U);
  EXPECT_FALSE(killed[0].restarts);
}

TEST(Restarts, are_given_up_by_a_stop_between_two_incarnations) {
  const auto cluster = start_cluster();
  const auto counter = must(cluster->spawn<Counter>({.max_restarts = -1}, 0).get(limit));
  Ends ends(*cluster, counter);
  // From the third death on there is time between two incarnations.
  for (std::size_t deaths = 1; deaths <= 4; ++deaths) {
    kill_process(counter);
    ASSERT_EQ(ends.wait_for_count(deaths).size(), deaths);
  }
  auto waiting = counter.call<&Counter::add>(1);
  ASSERT_TRUE(cluster->stop(counter).ok());
  EXPECT_EQ(waiting.get(limit).error().code, ErrorCode::actor_died);
  const auto told = ends.wait_for_count(5);
  ASSERT_EQ(told.size(), 5U);
  EXPECT_EQ(told[4].cause, DownCause::stopped);
}

TEST(Restarts, share_a_process_again) {
  const auto cluster = start_cluster();
  const SpawnOptions together{.process = "pair", .max_restarts = 1};
  const auto a = must(cluster->spawn<Counter>(together, 1).get(limit));
  const auto b = must(cluster->spawn<Counter>(together, 2).get(limit));
  Ends ends_a(*cluster, a), ends_b(*cluster, b);
  const int pid = kill_process(a);
  (void)ends_a.wait_for_count(1);
  (void)ends_b.wait_for_count(1);
  const int again = must(a.call<&Counter::pid>().get(limit));
  EXPECT_NE(again, pid);
  EXPECT_EQ(must(b.call<&Counter::pid>().get(limit)), again);
  EXPECT_EQ(must(b.call<&Counter::add>(0).get(limit)), 2);
}

TEST(Restarts, are_followed_by_actors_of_the_process_that_was_left) {
  const auto cluster = start_cluster();
  const auto stays = must(cluster->spawn<Insider>({.process = "together"}).get(limit));
  const auto goes = must(
      cluster
          ->spawn<Insider>({.process = "together", .max_restarts = 2, .restarts_after_exit = true})
          .get(limit));
  Ends ends(*cluster, goes);
  for (std::size_t exits = 1; exits <= 3; ++exits) {
    const auto pid = stays.call<&Insider::pid_of>(goes).get(limit);
    EXPECT_TRUE(pid.ok()) << "before exit " << exits << ": " << pid.error().message;
    goes.call<&Insider::leave>("it is bored");
    ASSERT_EQ(ends.wait_for_count(exits).size(), exits);
  }
  const auto gone = stays.call<&Insider::pid_of>(goes).get(limit);
  ASSERT_FALSE(gone.ok());
  EXPECT_EQ(gone.error().code, ErrorCode::actor_died) << gone.error().message;
  EXPECT_NE(gone.error().message.find("it is bored"), std::string::npos) << gone.error().message;
}

TEST(Restarts, are_not_for_actors_of_the_drivers_process) {
  const auto cluster = start_cluster();
  EXPECT_EQ(cluster->spawn_local<Counter>({.max_restarts = 1}, 0).get(limit).error().code,
            ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace troupe::test
