#include <algorithm>
#include <set>

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/process/runtime/task/test_tasks.hpp"

namespace troupe::test {

/// Tasks in worker processes, and on threads of this process.
class EitherMode : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Tasks, EitherMode, ::testing::Values(false, true),
                         [](const auto& mode) { return mode.param ? "in_process" : "processes"; });

TEST(Tasks, run_in_worker_processes_as_many_as_the_node_has_cpus) {
  const auto cluster = start_cluster();
  std::vector<Future<int>> pids;
  for (int i = 0; i < 200; ++i) pids.push_back(cluster->submit<&own_pid>({}));
  std::set<int> seen;
  for (auto& pid : pids) seen.insert(must(pid.get(limit)));
  EXPECT_FALSE(seen.contains(::getpid()));
  seen.insert(must(cluster->submit<&own_pid>({}).get(limit)));
  EXPECT_LE(seen.size(), 2U) << "they stay warm";
  EXPECT_LE(worker_pids(*cluster).size(), 2U);
}

TEST_P(EitherMode, give_answers_errors_and_exceptions) {
  const auto cluster = start_cluster({.in_process = GetParam()});
  EXPECT_EQ(must(cluster->submit<&add>({}, 40, 2).get(limit)), 42);
  EXPECT_TRUE(cluster->submit<&sleep_for_ms>({}, 1).get(limit).ok());
  EXPECT_EQ(must(cluster->submit<&divide>({}, 42, 2).get(limit)), 21);
  const auto refused = cluster->submit<&divide>({}, 1, 0).get(limit);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  const auto thrown = cluster->submit<&throw_out_of_range>({}, "7 of 3").get(limit);
  ASSERT_FALSE(thrown.ok());
  EXPECT_EQ(thrown.error().code, ErrorCode::exception);
  EXPECT_NE(thrown.error().message.find("std::out_of_range: 7 of 3"), std::string::npos)
      << thrown.error().message;
}

TEST_P(EitherMode, that_no_node_can_run_are_refused) {
  const auto cluster = start_cluster({.in_process = GetParam()});
  const auto code = [&](const TaskOptions& options) {
    const auto sum = cluster->submit<&add>(options, 1, 2).get(limit);
    return sum.ok() ? std::optional<ErrorCode>() : sum.error().code;
  };
  EXPECT_EQ(code({.resources = {.cpus = 3}}), ErrorCode::unschedulable);
  EXPECT_EQ(code({.resources = {.devices = 1}}), ErrorCode::unschedulable);
  EXPECT_EQ(code({.node = "elsewhere"}), ErrorCode::unschedulable);
  EXPECT_EQ(code({.resources = {.cpus = -1}}), ErrorCode::invalid_argument);
  EXPECT_EQ(code({.resources = {.cpus = 2}}), std::nullopt);
}

TEST_P(EitherMode, wait_for_the_resources_that_an_actor_holds) {
  const auto cluster = start_cluster({.in_process = GetParam()});
  const auto actor = must(cluster->spawn<Submitter>({.resources = {.cpus = 2}}).get(limit));
  auto sum = cluster->submit<&add>({}, 1, 2);
  EXPECT_FALSE(sum.wait(50ms));
  auto late = cluster->submit<&add>({.timeout = 20ms}, 1, 2);
  EXPECT_EQ(late.get(limit).error().code, ErrorCode::timed_out);
  ASSERT_TRUE(cluster->stop(actor).ok());
  EXPECT_EQ(must(sum.get(limit)), 3);
}

TEST_P(EitherMode, run_beside_a_long_one_and_not_behind_it) {
  const auto cluster = start_cluster({.in_process = GetParam()});
  std::vector<Future<int>> sums;
  for (int i = 0; i < 1000; ++i) sums.push_back(cluster->submit<&add>({}, i, 1));
  for (auto& sum : sums) must(sum.get(limit));  // they are known as short
  sums.clear();
  auto slow = cluster->submit<&sleep_for_ms>({}, 3000);
  for (int i = 0; i < 2000; ++i) sums.push_back(cluster->submit<&add>({}, i, 1));
  for (int i = 0; i < 2000; ++i) {
    EXPECT_EQ(must(sums[static_cast<std::size_t>(i)].get(limit)), i + 1);
  }
  EXPECT_FALSE(slow.ready()) << "they have waited for it";
  EXPECT_TRUE(slow.get(limit).ok());
}

TEST_P(EitherMode, submit_tasks_and_wait_for_them_without_a_deadlock) {
  const auto cluster = start_cluster({.in_process = GetParam()});
  EXPECT_EQ(must(cluster->submit<&fibonacci>({}, 8).get(limit)), 21);
}

TEST_P(EitherMode, are_submitted_by_actors) {
  const auto cluster = start_cluster({.in_process = GetParam()});
  const auto actor = must(cluster->spawn<Submitter>({}).get(limit));
  EXPECT_EQ(must(actor.call<&Submitter::sum_of_tasks>(2000).get(limit)), 2000 * 2001 / 2);
  const auto local = must(cluster->spawn_local<Submitter>({}).get(limit));
  EXPECT_EQ(must(local.call<&Submitter::sum_of_tasks>(100).get(limit)), 5050);
}

TEST(Tasks, run_on_the_node_that_they_name) {
  ClusterOptions options;
  options.nodes = {{"left", 1, {}}, {"right", 1, {}}};
  const auto cluster = start_cluster(std::move(options));
  const int left = must(cluster->submit<&own_pid>({.node = "left"}).get(limit));
  const int right = must(cluster->submit<&own_pid>({.node = "right"}).get(limit));
  EXPECT_NE(left, right);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(must(cluster->submit<&own_pid>({.node = "right"}).get(limit)), right);
  }
}

TEST(Tasks, see_their_own_devices_alone) {
  ClusterOptions options;
  options.nodes = {{"node", 2, {0, 1, 2}}};
  const auto cluster = start_cluster(std::move(options));
  const TaskOptions two{.resources = {.cpus = 1, .devices = 2}};
  EXPECT_EQ(must(cluster->submit<&visible_devices>(two).get(limit)), "0,1 of 2");
  EXPECT_EQ(must(cluster->submit<&visible_devices>({}).get(limit)), "not set of 0");
  // Their process ends soon, and others get them.
  const TaskOptions three{.resources = {.cpus = 1, .devices = 3}};
  EXPECT_EQ(must(cluster->submit<&visible_devices>(three).get(limit)), "0,1,2 of 3");
}

TEST_P(EitherMode, take_and_give_large_values) {
  const auto cluster = start_cluster({.in_process = GetParam()});
  const std::string large(std::size_t{40} << 20, 'x');
  auto first = cluster->submit<&echo>({}, large);
  auto second = cluster->submit<&echo>({}, large);
  auto third = cluster->submit<&echo>({}, std::string("small"));
  EXPECT_TRUE(must(first.get(limit)) == large);
  EXPECT_TRUE(must(second.get(limit)) == large);
  EXPECT_EQ(must(third.get(limit)), "small");
}

TEST(Tasks, beyond_the_limit_wait_and_are_refused_in_the_end) {
  ClusterOptions options;
  options.tasks.max_tasks = 4;
  options.calls.credit_timeout = 1500ms;
  const auto cluster = start_cluster(std::move(options));
  std::vector<Future<int>> sums;
  for (int i = 0; i < 1000; ++i) sums.push_back(cluster->submit<&add>({}, i, 1));
  for (auto& sum : sums) must(sum.get(limit));
  std::vector<Future<void>> slow;
  for (int i = 0; i < 4; ++i) slow.push_back(cluster->submit<&sleep_for_ms>({}, 60000));
  const auto refused = cluster->submit<&add>({}, 1, 2).get(limit);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted) << refused.error().message;
}

TEST(Tasks, are_answered_by_the_shutdown) {
  const auto cluster = start_cluster();
  auto slow = cluster->submit<&sleep_for_ms>({}, 60000);
  auto queued = cluster->submit<&add>({.resources = {.cpus = 2}}, 1, 2);
  cluster->shutdown(200ms);
  EXPECT_EQ(slow.get(0s).error().code, ErrorCode::cancelled);
  EXPECT_EQ(queued.get(0s).error().code, ErrorCode::cancelled);
}

TEST_P(EitherMode, call_back_on_the_callback_thread) {
  const auto cluster = start_cluster({.in_process = GetParam()});
  const Promise<int> told;
  cluster->submit<&add>({}, 1, 2).then([told](const Result<int>& sum) { told.complete(sum); });
  EXPECT_EQ(must(told.future().get(limit)), 3);
}

}  // namespace troupe::test
