#include <algorithm>
#include <csignal>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "tests/process/runtime/actor/test_actors.hpp"
#include "tests/support/children.hpp"

namespace troupe::test {

using Clock = std::chrono::steady_clock;

/// The resident memory of a process, [MiB].
double resident_mib(int pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/statm");
  std::uint64_t total = 0, resident = 0;
  status >> total >> resident;
  return static_cast<double>(resident) * 4096 / (1 << 20);
}

/// An actor that does not answer, and is called with 1 KiB or 1 MiB: more than 16 MiB in all.
class Floods : public testing::TestWithParam<std::size_t> {
 protected:
  static constexpr int credits = 64;
  static constexpr int calls = 2 * credits;

  Floods() {
    CallHub::Options bounds;
    bounds.credits = credits;
    bounds.credit_bytes = std::size_t{8} << 20;
    start(bounds);
  }

  /// Starts the cluster, in place of the one before.
  void start(const CallHub::Options& bounds) {
    cluster_.reset();
    ClusterOptions options;
    options.calls = bounds;
    options.calls.credit_timeout = 1ms;
    cluster_ = start_cluster(std::move(options));
    silent_ = must(cluster_->spawn<Recorder>({}).get(limit));
    other_ = must(cluster_->spawn<Counter>({}, 0).get(limit));
    for (const auto& info : cluster_->actors()) {
      if (info.address.id == silent_.id()) silent_pid_ = info.pid;
    }
    EXPECT_GT(silent_pid_, 0);
  }

  /// Calls the silent actor, and the other one after each.
  void flood() {
    const std::string text(GetParam(), 'x');
    [[maybe_unused]] const double caller_before = resident_mib(::getpid());
    [[maybe_unused]] const double callee_before = resident_mib(silent_pid_);
    std::vector<Future<std::string>> kept;
    int refused = 0;
    for (int i = 1; i <= calls; ++i) {
      auto answer = silent_.call<&Recorder::echo>(text);
      if (answer.ready()) {
        const auto error = answer.get(0s);
        ASSERT_FALSE(error.ok());
        ASSERT_EQ(error.error().code, ErrorCode::resource_exhausted) << error.error().message;
        ++refused;
      } else {
        kept.push_back(std::move(answer));
      }
      ASSERT_EQ(must(other_.call<&Counter::add>(1).get(limit)), i);
    }
    EXPECT_LE(kept.size(), std::size_t{credits});
    EXPECT_GE(refused, calls - credits);
#ifndef __SANITIZE_ADDRESS__  // which keeps freed memory
    // Each side may hold what the credits allow, and buffers that grow by doubling.
    EXPECT_LT(resident_mib(::getpid()) - caller_before, 40);
    EXPECT_LT(resident_mib(silent_pid_) - callee_before, 40);
#endif
  }

  std::unique_ptr<Cluster> cluster_;
  ActorHandle<Recorder> silent_;
  ActorHandle<Counter> other_;
  int silent_pid_ = 0;
};

TEST_P(Floods, of_an_actor_that_is_busy_are_bounded_and_leave_others_alone) {
  auto busy = silent_.call<&Recorder::block_for_ms>(3000);
  flood();
  EXPECT_TRUE(busy.get(limit).ok());
}

TEST_P(Floods, of_an_actor_whose_process_is_stopped_are_bounded_and_leave_others_alone) {
  ASSERT_EQ(::kill(silent_pid_, SIGSTOP), 0);
  flood();
  ::kill(silent_pid_, SIGCONT);
}

using LargeFloods = Floods;

TEST_P(LargeFloods, of_a_process_that_is_stopped_are_bounded_by_its_link_too) {
  start({});  // credits for 256 MiB, of which a link queues 64
  ASSERT_EQ(::kill(silent_pid_, SIGSTOP), 0);
  const std::string text(GetParam(), 'x');
  [[maybe_unused]] const double caller_before = resident_mib(::getpid());
  [[maybe_unused]] const double callee_before = resident_mib(silent_pid_);
  const auto begin = Clock::now();
  std::vector<Future<std::string>> kept;
  int refused = 0;
  for (int i = 1; i <= calls; ++i) {
    auto answer = silent_.call<&Recorder::echo>(text);
    if (!answer.ready()) {
      kept.push_back(std::move(answer));
      continue;
    }
    const auto error = answer.get(0s);
    ASSERT_FALSE(error.ok());
    ASSERT_EQ(error.error().code, ErrorCode::resource_exhausted) << error.error().message;
    ++refused;
    ASSERT_EQ(must(other_.call<&Counter::add>(1).get(limit)), refused);
  }
  EXPECT_LT(Clock::now() - begin, 1500ms) << "before a stopped process is given up";
  EXPECT_GE(refused, calls / 3);
#ifndef __SANITIZE_ADDRESS__  // which keeps freed memory
  EXPECT_LT(resident_mib(::getpid()) - caller_before, 80);
  EXPECT_LT(resident_mib(silent_pid_) - callee_before, 8);
#endif
  ::kill(silent_pid_, SIGCONT);
  for (auto& answer : kept) EXPECT_TRUE(answer.get(limit).ok());
}

INSTANTIATE_TEST_SUITE_P(Sizes, LargeFloods, testing::Values(std::size_t{1} << 20));
INSTANTIATE_TEST_SUITE_P(Sizes, Floods,
                         testing::Values(std::size_t{1} << 10, std::size_t{1} << 20));

TEST(Spawns, of_64_actors_at_once_do_not_delay_the_notice_of_a_death) {
  constexpr int at_once = 64;
  constexpr int attempts = 5;
  double least_ms = 1e9;  // the machine may be busy
  std::vector<std::size_t> started;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    ClusterOptions options;
    options.nodes = {{"node", 2 * at_once, {}}};
    const auto cluster = start_cluster(std::move(options));
    const auto victim = must(cluster->spawn<Counter>({}, 1).get(limit));
    const int pid = must(victim.call<&Counter::pid>().get(limit));
    const Promise<Clock::time_point> died;
    const auto token =
        cluster->watch(victim, [&, agent = cluster->nodes()[0].agent_pid](const ActorDown&) {
          started.push_back(children_of(agent).size());
          died.complete(Clock::now());
        });
    std::vector<Future<ActorHandle<Counter>>> spawning;
    for (int i = 0; i < at_once; ++i) spawning.push_back(cluster->spawn<Counter>({}, 1));
    const auto start = Clock::now();
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    const auto at = must(died.future().get(limit));
    least_ms = std::min(least_ms, std::chrono::duration<double, std::milli>(at - start).count());
    for (auto& one : spawning) EXPECT_TRUE(one.get(limit).ok());
  }
  EXPECT_LT(least_ms, 50);
  std::ranges::sort(started);
  EXPECT_LT(started[attempts / 2], at_once - 8) << "a death is noticed between the starts";
}

}  // namespace troupe::test
