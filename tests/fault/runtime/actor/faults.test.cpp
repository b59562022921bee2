#include <latch>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "tests/fault/runtime/actor/victims.hpp"
#include "tests/support/dev_shm.hpp"
#include "tests/support/time_scale.hpp"

namespace troupe::test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Clock = std::chrono::steady_clock;

std::int64_t ms_since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
}

TEST(Faults, a_killed_driver_leaves_no_process_socket_or_shared_memory) {
  auto driver = start_sub_driver();
  ASSERT_TRUE(driver.ok()) << driver.error().message;
  ASSERT_EQ(driver->pids.size(), 6U) << "two agents and four actors";
  ASSERT_THAT(abstract_sockets(driver->job_marker), ::testing::Not(IsEmpty()));
  const auto start = Clock::now();
  driver->process.signal(SIGKILL);
  ASSERT_TRUE(driver->process.wait(2000ms * time_scale).has_value());
  EXPECT_THAT(wait_until_gone(driver->pids, 2000ms * time_scale), IsEmpty());
  std::printf("all processes gone %ld ms after kill -9 of the driver\n",
              static_cast<long>(ms_since(start)));
  EXPECT_THAT(abstract_sockets(driver->job_marker), IsEmpty());
  EXPECT_THAT(dev_shm_entries(), IsEmpty());
}

TEST(Faults, a_stopped_then_killed_driver_leaves_nothing_either) {
  auto driver = start_sub_driver();
  ASSERT_TRUE(driver.ok()) << driver.error().message;
  driver->process.signal(SIGSTOP);
  const auto start = Clock::now();
  // Agents notice the silence themselves and end everything, although the driver still exists.
  EXPECT_THAT(wait_until_gone(driver->pids, 2500ms * time_scale), IsEmpty());
  std::printf("all processes gone %ld ms after SIGSTOP of the driver\n",
              static_cast<long>(ms_since(start)));
  driver->process.signal(SIGKILL);
  ASSERT_TRUE(driver->process.wait(2000ms * time_scale).has_value());
  EXPECT_THAT(abstract_sockets(driver->job_marker), IsEmpty());
}

/// Holds a process at its very end, like a device that does not release it. Used from one thread.
class HeldAtExit {
 public:
  explicit HeldAtExit(int pid)
      : pid_(pid), held_(::ptrace(PTRACE_SEIZE, pid, nullptr, PTRACE_O_TRACEEXIT) == 0) {}
  ~HeldAtExit() { let_go(); }
  bool held() const { return held_; }
  void let_go() {
    if (!std::exchange(held_, false)) return;
    ::waitpid(pid_, nullptr, __WALL);  // for the stop at its end
    ::ptrace(PTRACE_DETACH, pid_, nullptr, nullptr);
  }

 private:
  const int pid_;
  bool held_;
};

TEST(Faults, a_process_that_is_slow_to_die_does_not_keep_others_alive) {
  auto driver = start_sub_driver();
  ASSERT_TRUE(driver.ok()) << driver.error().message;
  HeldAtExit left(driver->pids[4]), right(driver->pids[5]);  // the second actor of each agent
  if (!left.held() || !right.held()) GTEST_SKIP() << "processes cannot be traced here";
  driver->process.signal(SIGSTOP);  // agents notice, and kill processes while they live
  EXPECT_THAT(wait_until_gone({driver->pids[2], driver->pids[3]}, 3500ms * time_scale), IsEmpty());
  left.let_go();
  right.let_go();
  EXPECT_THAT(wait_until_gone(driver->pids, 6000ms * time_scale), IsEmpty());
}

TEST(Faults, a_process_that_survives_its_kill_is_told_and_replaced_without_its_device) {
  ClusterOptions options;
  options.nodes = {{"left", 1, {0}}, {"right", 1, {0}}};
  options.kill_limit = 500ms;
  const auto cluster = *Cluster::start(std::move(options));
  const auto group = *cluster->create_placement_group({.bundles = {{.devices = 1}}, .moves = true});
  const auto actor =
      *cluster
           ->spawn<Sleeper>(
               {.resources = {.devices = 1}, .bundle = group.bundle(0), .max_restarts = -1})
           .get(limit);
  Promise<ActorDown> told;
  const auto watch = cluster->watch(actor, [told](const ActorDown& down) { told.complete(down); });
  HeldAtExit held(*actor.call<&Sleeper::pid>().get(limit));
  if (!held.held()) GTEST_SKIP() << "processes cannot be traced here";
  ASSERT_TRUE(cluster->kill(actor).ok());
  EXPECT_FALSE(told.future().wait(300ms)) << "it may end yet";
  const auto down = told.future().get(limit);
  ASSERT_TRUE(down.ok()) << down.error().message;
  EXPECT_TRUE(down->restarts);
  EXPECT_THAT(down->message, HasSubstr("does not end (state "));
  EXPECT_THAT(down->message, HasSubstr("traced by process "));
  const auto placed = cluster->place_again(group.id);
  ASSERT_TRUE(placed.ok()) << placed.error().message;
  EXPECT_EQ(placed->bundles.at(0).node, "right");
  ASSERT_TRUE(actor.call<&Sleeper::pid>().get(limit).ok()) << "its next incarnation";
  const SpawnOptions on_left{.resources = {.devices = 1}, .node = "left"};
  EXPECT_FALSE(cluster->spawn<Sleeper>(on_left).get(limit).ok()) << "its device is in use";
  held.let_go();
  const auto until = Clock::now() + limit;
  while (!cluster->spawn<Sleeper>(on_left).get(limit).ok()) {
    ASSERT_LT(Clock::now(), until) << "the device is not free once it has ended";
    std::this_thread::sleep_for(10ms);
  }
}

class FaultsInACluster : public ::testing::Test {
 protected:
  void SetUp() override {
    ClusterOptions options;
    options.nodes = {{"left", 2, {}}, {"right", 2, {}}};
    auto cluster = Cluster::start(std::move(options));
    ASSERT_TRUE(cluster.ok()) << cluster.error().message;
    cluster_ = *std::move(cluster);
    for (const char* node : {"left", "right"}) {
      auto sleeper =
          cluster_->spawn<Sleeper>({.name = std::string("sleeper-") + node, .node = node})
              .get(limit);
      ASSERT_TRUE(sleeper.ok()) << sleeper.error().message;
      auto pid = sleeper->call<&Sleeper::pid>().get(limit);
      ASSERT_TRUE(pid.ok()) << pid.error().message;
      sleepers_.push_back(*sleeper);
      pids_.push_back(*pid);
      tokens_.push_back(cluster_->watch(
          *sleeper,
          [down = downs_.emplace_back()](const ActorDown& told) { down.complete(told); }));
    }
  }
  /// The other node keeps working.
  void expect_right_is_well() {
    const auto pid = sleepers_[1].call<&Sleeper::pid>().get(limit);
    ASSERT_TRUE(pid.ok()) << pid.error().message;
    EXPECT_EQ(*pid, pids_[1]);
    const auto fresh = cluster_->spawn<Sleeper>({}).get(limit);
    ASSERT_TRUE(fresh.ok()) << fresh.error().message;
    // In a past bug, OpenSSL's error queue after the end of one connection closed the others.
    EXPECT_FALSE(downs_[1].future().wait(300ms)) << "the other node must not be taken along";
    EXPECT_TRUE(cluster_->nodes()[1].alive);
  }

  std::unique_ptr<Cluster> cluster_;
  std::vector<ActorHandle<Sleeper>> sleepers_;
  std::vector<int> pids_;
  std::vector<Promise<ActorDown>> downs_;
  std::vector<WatchToken> tokens_;
};

TEST_F(FaultsInACluster, a_killed_actor_is_told_at_once) {
  auto pending = sleepers_[0].call<&Sleeper::sleep_ms>(60000);
  const auto start = Clock::now();
  ASSERT_EQ(::kill(pids_[0], SIGKILL), 0);
  const auto down = downs_[0].future().get(2s);
  ASSERT_TRUE(down.ok()) << down.error().message;
  std::printf("told %ld ms after kill -9 of the actor\n", static_cast<long>(ms_since(start)));
  EXPECT_EQ(down->cause, DownCause::signal);
  EXPECT_EQ(down->code, SIGKILL);
  EXPECT_THAT(down->message, HasSubstr("sleeper-left"));
  const auto answer = pending.get(2s);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::actor_died);
  EXPECT_THAT(answer.error().message, HasSubstr("SIGKILL"));
  expect_right_is_well();
}

TEST_F(FaultsInACluster, a_process_that_has_ended_is_not_started_again_for_a_late_actor) {
  const SpawnOptions together{.node = "left", .process = "shared"};
  const auto first = cluster_->spawn<Sleeper>(together).get(limit);
  ASSERT_TRUE(first.ok()) << first.error().message;
  const int pid = *first->call<&Sleeper::pid>().get(limit);

  // The agent tells of the end only after the next actor is on its way to the process.
  const int agent = cluster_->nodes()[0].agent_pid;
  ASSERT_EQ(::kill(agent, SIGSTOP), 0);
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  const auto deadline = Clock::now() + limit;
  while (process_state(pid) == 'S' && Clock::now() < deadline) std::this_thread::yield();
  auto late = cluster_->spawn<Sleeper>(together);
  ASSERT_EQ(::kill(agent, SIGCONT), 0);
  const auto refused = late.get(limit);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::actor_died) << refused.error().message;

  const auto again = cluster_->spawn<Sleeper>(together).get(limit);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(children_called("troupe: shared-left on left", cluster_->nodes()[0].agent_pid),
            std::vector<int>{*again->call<&Sleeper::pid>().get(limit)})
      << "the late actor must not have a process that nobody knows of";
}

TEST_F(FaultsInACluster, an_exit_code_is_told) {
  sleepers_[0].call<&Sleeper::end_process>(7);
  const auto down = downs_[0].future().get(limit);
  ASSERT_TRUE(down.ok()) << down.error().message;
  EXPECT_EQ(down->cause, DownCause::exit_code);
  EXPECT_EQ(down->code, 7);
  EXPECT_THAT(down->message, HasSubstr("code 7"));
}

TEST_F(FaultsInACluster, a_killed_agent_takes_its_actors_along_and_is_named) {
  const auto start = Clock::now();
  const int agent = cluster_->nodes()[0].agent_pid;
  ASSERT_EQ(::kill(agent, SIGKILL), 0);
  const auto down = downs_[0].future().get(2s);
  ASSERT_TRUE(down.ok()) << down.error().message;
  std::printf("told %ld ms after kill -9 of the agent\n", static_cast<long>(ms_since(start)));
  EXPECT_EQ(down->cause, DownCause::node_lost);
  EXPECT_THAT(down->message,
              HasSubstr(fmt::format("the agent of 'left' (pid {}) was killed by signal 9", agent)));
  EXPECT_THAT(wait_until_gone({pids_[0]}, 2000ms * time_scale), IsEmpty());
  EXPECT_FALSE(cluster_->nodes()[0].alive);
  EXPECT_EQ(cluster_->spawn<Sleeper>({.node = "left"}).get(limit).error().code,
            ErrorCode::peer_died);
  expect_right_is_well();
}

TEST_F(FaultsInACluster, a_stopped_actor_is_noticed_killed_and_told) {
  const auto start = Clock::now();
  ASSERT_EQ(::kill(pids_[0], SIGSTOP), 0);
  const auto down = downs_[0].future().get(4s);
  EXPECT_LE(ms_since(start), 2500 * time_scale);
  ASSERT_TRUE(down.ok()) << down.error().message;
  std::printf("told %ld ms after SIGSTOP of the actor\n", static_cast<long>(ms_since(start)));
  EXPECT_EQ(down->cause, DownCause::unresponsive);
  EXPECT_THAT(wait_until_gone({pids_[0]}, 1000ms), IsEmpty());
  expect_right_is_well();
}

TEST_F(FaultsInACluster, callers_of_a_stopped_actor_are_told_within_two_seconds) {
  struct Case {
    int max_restarts;
    ErrorCode code;
  };
  for (const Case& expected :
       {Case{0, ErrorCode::actor_died}, Case{-1, ErrorCode::actor_unavailable}}) {
    const auto stopped =
        *cluster_->spawn<Sleeper>({.node = "left", .max_restarts = expected.max_restarts})
             .get(limit);
    const int pid = *stopped.call<&Sleeper::pid>().get(limit);
    auto under_way = stopped.call<&Sleeper::sleep_ms>(60000);
    const auto start = Clock::now();
    ASSERT_EQ(::kill(pid, SIGSTOP), 0);
    auto later = stopped.call<&Sleeper::pid>();
    auto from_its_node = sleepers_[0].call<&Sleeper::outcome_of_call>(stopped);
    auto from_another = sleepers_[1].call<&Sleeper::outcome_of_call>(stopped);
    EXPECT_EQ(under_way.get(limit).error().code, expected.code);
    EXPECT_EQ(later.get(limit).error().code, expected.code);
    EXPECT_EQ(*from_its_node.get(limit), to_string(expected.code));
    EXPECT_EQ(*from_another.get(limit), to_string(expected.code));
    EXPECT_LE(ms_since(start), 2000 * time_scale);
    std::printf("callers told %ld ms after SIGSTOP of the actor\n",
                static_cast<long>(ms_since(start)));
  }
  expect_right_is_well();
}

TEST_F(FaultsInACluster, a_stopped_agent_is_noticed_killed_and_told) {
  const int agent = cluster_->nodes()[0].agent_pid;
  const auto start = Clock::now();
  ASSERT_EQ(::kill(agent, SIGSTOP), 0);
  const auto down = downs_[0].future().get(4s);
  EXPECT_LE(ms_since(start), 2500 * time_scale);
  ASSERT_TRUE(down.ok()) << down.error().message;
  std::printf("told %ld ms after SIGSTOP of the agent\n", static_cast<long>(ms_since(start)));
  EXPECT_EQ(down->cause, DownCause::node_lost);
  EXPECT_THAT(down->message, HasSubstr("was silent for 1800 ms"));
  EXPECT_THAT(wait_until_gone({agent, pids_[0]}, 1000ms), IsEmpty());
  expect_right_is_well();
}

TEST_F(FaultsInACluster, shutdown_is_bounded_although_an_actor_is_busy) {
  for (const auto& sleeper : sleepers_) sleeper.call<&Sleeper::sleep_ms>(60000);
  const auto start = Clock::now();
  cluster_->shutdown(1s);
  EXPECT_LT(ms_since(start), 2500);
  EXPECT_THAT(wait_until_gone(pids_, 100ms), IsEmpty());
}

TEST_F(FaultsInACluster, ctrl_c_reaches_no_child) {
  for (const int pid : pids_) ASSERT_EQ(::kill(pid, SIGINT), 0);
  ASSERT_EQ(::kill(cluster_->nodes()[0].agent_pid, SIGINT), 0);
  for (const auto& sleeper : sleepers_) EXPECT_TRUE(sleeper.call<&Sleeper::pid>().get(limit).ok());
}

}  // namespace troupe::test
