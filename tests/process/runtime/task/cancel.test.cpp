#include <gtest/gtest.h>

#include "tests/process/runtime/task/test_tasks.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe::test {
namespace {

/// Tasks in worker processes, and on threads of this process.
struct TaskCancellation : ::testing::TestWithParam<bool> {
  TaskCancellation() {
    ClusterOptions options;
    options.nodes = {{"node0", 1, {}}};
    options.in_process = GetParam();
    cluster = start_cluster(std::move(options));
  }
  /// A task that runs until it is cancelled, on the one cpu.
  Future<void> begin() {
    auto running = cluster->submit<&run_until_cancelled>({}, file);
    EXPECT_TRUE(comes_true([&] { return lines_of(file).size() == 1; }));
    return running;
  }
  bool saw_it() {
    return comes_true(
        [&] { return lines_of(file).size() == 2 && lines_of(file)[1] == "cancelled"; });
  }

  const tests::TemporaryFolder folder;
  const std::string file = (folder.path() / "running").string();
  const std::string other = (folder.path() / "queued").string();
  std::unique_ptr<Cluster> cluster;
};
INSTANTIATE_TEST_SUITE_P(Tasks, TaskCancellation, ::testing::Values(false, true),
                         [](const auto& mode) { return mode.param ? "in_process" : "processes"; });

TEST_P(TaskCancellation, keeps_queued_ones_from_running_and_tells_those_that_run) {
  auto running = begin();
  auto queued = cluster->submit<&run_until_cancelled>({}, other);
  queued.cancel();
  EXPECT_EQ(queued.get(limit).error().code, ErrorCode::cancelled);
  EXPECT_EQ(lines_of(file).size(), 1U) << "the other one goes on";
  running.cancel();
  EXPECT_EQ(running.get(limit).error().code, ErrorCode::cancelled);
  EXPECT_TRUE(saw_it());
  EXPECT_EQ(must(cluster->submit<&add>({}, 1, 2).get(limit)), 3) << "its worker is free again";
  EXPECT_TRUE(lines_of(other).empty());
}

TEST_P(TaskCancellation, keeps_those_from_running_that_their_worker_has_already) {
  std::vector<Future<int>> sums;
  for (int i = 0; i < 500; ++i) sums.push_back(cluster->submit<&add>({}, i, 1));
  for (auto& sum : sums) must(sum.get(limit));  // they are known as short: many are given ahead
  std::vector<Future<void>> begun;
  for (int i = 0; i < 10; ++i) begun.push_back(cluster->submit<&run_until_cancelled>({}, file));
  EXPECT_TRUE(comes_true([&] { return lines_of(file).size() == 1; }));
  for (auto one = begun.rbegin(); one != begun.rend(); ++one) one->cancel();
  for (auto& one : begun) EXPECT_EQ(one.get(limit).error().code, ErrorCode::cancelled);
  EXPECT_EQ(must(cluster->submit<&add>({}, 1, 2).get(limit)), 3);
  EXPECT_LE(lines_of(file).size(), 4U) << "at most one for each worker has run";
}

TEST_P(TaskCancellation, of_answered_ones_does_nothing) {
  auto sum = cluster->submit<&add>({}, 1, 2);
  ASSERT_TRUE(sum.wait(limit));
  sum.cancel();
  EXPECT_EQ(must(sum.get(limit)), 3);
}

TEST_P(TaskCancellation, is_asked_for_by_actors) {
  const auto actor = must(cluster->spawn<Submitter>({}).get(limit));
  EXPECT_EQ(must(actor.call<&Submitter::cancel_a_task>(file).get(limit)), "cancelled");
  EXPECT_TRUE(saw_it());
}

TEST_P(TaskCancellation, of_a_result_object_is_asked_for_by_any_process) {
  const auto actor = must(cluster->spawn<Submitter>({}).get(limit));
  const auto mine = cluster->submit_object<&sum_until_cancelled>({}, file);
  EXPECT_TRUE(comes_true([&] { return lines_of(file).size() == 1; }));
  must(actor.call<&Submitter::cancel>(mine).get(limit));
  EXPECT_EQ(cluster->get(mine, limit).error().code, ErrorCode::cancelled);
  EXPECT_TRUE(saw_it());
}

TEST_P(TaskCancellation, comes_with_the_timeout_of_one_that_runs) {
  auto late = cluster->submit<&run_until_cancelled>({.timeout = 300ms}, file);
  EXPECT_EQ(late.get(limit).error().code, ErrorCode::timed_out);
  if (!lines_of(file).empty()) {
    EXPECT_TRUE(saw_it());
  }
}

TEST_P(TaskCancellation, comes_to_the_calls_of_a_task_with_its_deadline) {
  const auto actor = must(cluster->spawn<Submitter>({}).get(limit));
  EXPECT_EQ(must(cluster->submit<&remaining_ms_of_call>({}, actor).get(limit)), -1);
  const auto left = must(cluster->submit<&remaining_ms_of_call>({.timeout = 1h}, actor).get(limit));
  EXPECT_GT(left, 3'000'000);
  EXPECT_LE(left, 3'600'000);
}

}  // namespace
}  // namespace troupe::test
