#include <csignal>

#include <gtest/gtest.h>

#include "tests/process/runtime/task/test_tasks.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe::test {

TEST(TaskRetries, answer_each_of_ten_thousand_tasks_once_while_workers_are_killed) {
  const auto cluster = start_cluster();
  must(cluster->submit<&add>({}, 1, 2).get(limit));
  constexpr int count = 10000;
  std::vector<Future<int>> sums;
  for (int i = 0; i < count; ++i) sums.push_back(cluster->submit<&slow_add>({}, i, 1));
  int wrong = 0, kills = 0;
  for (int i = 0; i < count; ++i) {
    if (i % 1000 == 500) {
      for (const int pid : worker_pids(*cluster)) {
        ::kill(pid, SIGKILL);
        ++kills;
        break;
      }
    }
    const auto sum = sums[static_cast<std::size_t>(i)].get(limit);
    if (!sum.ok() || *sum != i + 1) ++wrong;
    if (!sum.ok() && wrong < 3) ADD_FAILURE() << sum.error().message;
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(kills, 3);
}

TEST(TaskRetries, run_a_task_again_whose_process_died) {
  const tests::TemporaryFolder folder;
  const auto cluster = start_cluster();
  const auto file = (folder.path() / "died").string();
  EXPECT_EQ(must(cluster->submit<&die_once>({.max_retries = 1}, file).get(limit)), "lives");
}

TEST(TaskRetries, end_with_the_cause_of_the_last_death) {
  const auto cluster = start_cluster();
  for (const int retries : {0, 2}) {
    const auto died = cluster->submit<&die>({.max_retries = retries}).get(limit);
    ASSERT_FALSE(died.ok());
    EXPECT_EQ(died.error().code, ErrorCode::actor_died) << died.error().message;
    EXPECT_NE(died.error().message.find("SIGKILL"), std::string::npos) << died.error().message;
  }
  EXPECT_EQ(must(cluster->submit<&add>({}, 1, 2).get(limit)), 3);
}

TEST(TaskRetries, spare_the_tasks_beside_one_that_kills_its_process) {
  const auto cluster = start_cluster();
  std::vector<Future<int>> sums;
  for (int i = 0; i < 1000; ++i) sums.push_back(cluster->submit<&add>({}, i, 1));
  for (auto& sum : sums) must(sum.get(limit));  // they are known as short
  sums.clear();
  std::vector<Future<void>> deaths;
  for (int i = 0; i < 300; ++i) {
    sums.push_back(cluster->submit<&add>({.max_retries = 1}, i, 1));
    if (i % 100 == 50) deaths.push_back(cluster->submit<&die>({.max_retries = 1}));
  }
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(must(sums[static_cast<std::size_t>(i)].get(limit)), i + 1);
  }
  for (auto& death : deaths) EXPECT_EQ(death.get(limit).error().code, ErrorCode::actor_died);
}

TEST(TaskRetries, go_to_another_node_when_theirs_is_lost) {
  ClusterOptions options;
  options.nodes = {{"left", 2, {}}, {"right", 1, {}}};
  const auto cluster = start_cluster(std::move(options));
  auto pinned = cluster->submit<&sleep_for_ms>({.node = "left"}, 60000);
  std::vector<Future<void>> naps;
  for (int i = 0; i < 50; ++i) naps.push_back(cluster->submit<&sleep_for_ms>({}, 5));
  must(naps.front().get(limit));
  for (const auto& node : cluster->nodes()) {
    if (node.spec.name == "left") ::kill(node.agent_pid, SIGKILL);
  }
  for (std::size_t i = 1; i < naps.size(); ++i) EXPECT_TRUE(naps[i].get(limit).ok());
  const auto lost = pinned.get(limit);
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::unschedulable) << lost.error().message;
}

}  // namespace troupe::test
