#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/runtime/task/test_tasks.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe::test {
namespace {

using ::testing::HasSubstr;

/// A cluster, and a file in which tasks note their runs.
struct ResultObjects : ::testing::Test {
  /// Kills the process in which the latest run of a task was, whose result it has.
  void kill_holder() const { ::kill(std::stoi(lines_of(file).back()), SIGKILL); }
  std::size_t runs() const { return lines_of(file).size(); }
  /// Waits for the answers of all tasks. That of a task may come after its object, and a worker
  /// that is killed before has its task run once more.
  static void expect_all_tasks_to_end(Cluster& cluster) {
    EXPECT_TRUE(comes_true(
        [&] { return cluster.metrics_text().find("\ntroupe_tasks 0\n") != std::string::npos; }));
  }

  const tests::TemporaryFolder folder;
  const std::string file = (folder.path() / "runs").string();
};

TEST_F(ResultObjects, that_are_small_are_their_callers_and_survive_the_worker) {
  const auto cluster = start_cluster();
  const auto ref = cluster->submit_object<&make_floats>({}, file, 3, 2.0F);
  EXPECT_THAT(must(cluster->get(ref, limit)).get(), ::testing::ElementsAre(2.0F, 2.0F, 2.0F));
  kill_holder();
  EXPECT_EQ(must(cluster->get(ref, limit))->size(), 3U);
  EXPECT_EQ(runs(), 1U);
}

TEST_F(ResultObjects, that_are_large_stay_where_they_are_and_go_to_tasks_and_actors_directly) {
  const auto cluster = start_cluster();
  const auto actor = must(cluster->spawn<Submitter>({.resources = {.cpus = 1}}).get(limit));
  auto ref = cluster->submit_object<&make_floats>({}, file, many, 2.0F);
  auto sum = cluster->submit_object<&sum_of>({}, ref);  // before it is there
  EXPECT_EQ(must(actor.call<&Submitter::sum>(ref).get(limit)), 2.0 * many);
  EXPECT_EQ(must(cluster->get(sum, limit)).get(), 2.0 * many);
  EXPECT_EQ(must(cluster->submit<&sum_of>({}, ref).get(limit)), 2.0 * many);
  EXPECT_EQ(cluster->objects().counts().held, 0U) << "it did not come to the driver";
  EXPECT_EQ(must(cluster->get(ref, limit))->size(), static_cast<std::size_t>(many));
  EXPECT_EQ(runs(), 1U);
}

TEST_F(ResultObjects, are_there_after_their_workers_were_killed) {
  const auto cluster = start_cluster();
  const auto ref = cluster->submit_object<&make_floats>({}, file, many, 2.0F);
  EXPECT_EQ(must(cluster->submit<&sum_of>({}, ref).get(limit)), 2.0 * many);
  expect_all_tasks_to_end(*cluster);
  for (std::size_t kills = 1; kills <= 3; ++kills) {
    kill_holder();
    EXPECT_TRUE(comes_true([&] { return runs() > kills; }));
    EXPECT_EQ(must(cluster->submit<&sum_of>({}, ref).get(limit)), 2.0 * many);
    expect_all_tasks_to_end(*cluster);
  }
  kill_holder();  // no retry is left
  EXPECT_TRUE(comes_true([&] {
    const auto lost = cluster->get(ref, limit);
    if (lost.ok()) return false;
    EXPECT_EQ(lost.error().code, ErrorCode::object_lost) << lost.error().message;
    EXPECT_THAT(lost.error().message, HasSubstr("make_floats"));
    return true;
  }));
  EXPECT_EQ(runs(), 4U);
}

TEST_F(ResultObjects, that_may_not_be_computed_again_are_lost_with_the_cause) {
  const auto cluster = start_cluster();
  const auto actor = must(cluster->spawn<Submitter>({.resources = {.cpus = 1}}).get(limit));
  const auto ref = cluster->submit_object<&make_floats>({.max_retries = 0}, file, many, 2.0F);
  EXPECT_EQ(must(actor.call<&Submitter::sum>(ref).get(limit)), 2.0 * many);
  expect_all_tasks_to_end(*cluster);
  kill_holder();
  EXPECT_TRUE(comes_true([&] { return !actor.call<&Submitter::sum>(ref).get(limit).ok(); }));
  const auto lost = actor.call<&Submitter::sum>(ref).get(limit);
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::object_lost);
  EXPECT_THAT(lost.error().message, HasSubstr("max_retries 0"));
  EXPECT_EQ(runs(), 1U);
}

TEST_F(ResultObjects, are_computed_again_with_the_lost_objects_that_they_were_made_of) {
  const auto cluster = start_cluster();
  auto first = cluster->submit_object<&make_floats>({}, file, many, 1.0F);
  const auto second = cluster->submit_object<&doubled>({}, file, first);
  first = {};  // the second one keeps it
  EXPECT_EQ(must(cluster->submit<&sum_of>({}, second).get(limit)), 2.0 * many);
  expect_all_tasks_to_end(*cluster);
  for (const int pid : worker_pids(*cluster)) ::kill(pid, SIGKILL);
  EXPECT_EQ(must(cluster->submit<&sum_of>({}, second).get(limit)), 2.0 * many);
  EXPECT_EQ(runs(), 4U);
}

TEST_F(ResultObjects, of_a_lost_node_are_computed_on_another_one) {
  const auto cluster = start_cluster({.nodes = {{"left", 1, {}}, {"right", 1, {}}}});
  auto filler = cluster->submit<&sleep_for_ms>({.node = "right"}, 1000);
  const auto ref = cluster->submit_object<&make_floats>({}, file, many, 3.0F);
  EXPECT_TRUE(cluster->wait<Floats>({ref}, 1, limit).ready.size() == 1);
  must(filler.get(limit));
  expect_all_tasks_to_end(*cluster);
  for (const auto& node : cluster->nodes()) {
    if (node.spec.name == "left") ::kill(node.agent_pid, SIGKILL);
  }
  EXPECT_TRUE(comes_true([&] { return runs() == 2; }));
  EXPECT_EQ(must(cluster->submit<&sum_of>({}, ref).get(limit)), 3.0 * many);
}

TEST_F(ResultObjects, of_an_actor_that_has_ended_are_lost) {
  const auto cluster = start_cluster();
  const auto actor = must(cluster->spawn<Submitter>({.name = "submitter"}).get(limit));
  const auto ref = must(actor.call<&Submitter::submit_floats>(file, many, 2.0F).get(limit));
  EXPECT_EQ(must(cluster->submit<&sum_of>({}, ref).get(limit)), 2.0 * many);
  expect_all_tasks_to_end(*cluster);
  kill_holder();
  EXPECT_EQ(must(cluster->submit<&sum_of>({}, ref).get(limit)), 2.0 * many);
  EXPECT_EQ(runs(), 2U);
  ASSERT_TRUE(cluster->kill(actor).ok());
  EXPECT_TRUE(comes_true([&] {
    const auto lost = cluster->submit<&sum_of>({}, ref).get(limit);
    if (lost.ok()) return false;
    EXPECT_EQ(lost.error().code, ErrorCode::object_lost) << lost.error().message;
    EXPECT_THAT(lost.error().message, HasSubstr("submitter"));
    return true;
  }));
  EXPECT_EQ(runs(), 2U);
}

TEST_F(ResultObjects, keep_their_workers_from_being_stopped_until_they_are_freed) {
  ClusterOptions options;
  options.nodes = {{"node0", 2, {}}};
  options.tasks.idle_limit = 200ms;
  const auto cluster = start_cluster(std::move(options));
  const auto on_two_workers = [&] {  // each is busy with one of them
    return std::vector{cluster->submit_object<&make_slowly>({}, file, 500, many),
                       cluster->submit_object<&make_slowly>({}, file, 500, many)};
  };
  auto refs = on_two_workers();
  EXPECT_EQ(cluster->wait(refs, 2, limit).ready.size(), 2U);
  std::this_thread::sleep_for(2500ms);  // longer than idle workers are kept
  EXPECT_GE(worker_pids(*cluster).size(), 2U);
  for (const auto& ref : refs) {
    EXPECT_EQ(must(cluster->submit<&sum_of>({}, ref).get(limit)), 1.0 * many);
  }
  EXPECT_EQ(runs(), 2U);
  refs.clear();
  EXPECT_TRUE(comes_true([&] { return worker_pids(*cluster).size() == 1; }));
  (void)on_two_workers();  // nobody waits for these when they come
  EXPECT_TRUE(comes_true([&] { return runs() == 4; }));
  EXPECT_TRUE(comes_true([&] { return worker_pids(*cluster).size() == 1; }));
}

TEST_F(ResultObjects, have_the_errors_of_their_tasks) {
  const auto cluster = start_cluster();
  EXPECT_EQ(must(cluster->get(cluster->submit_object<&divide>({}, 42, 2), limit)).get(), 21);
  const auto code = [&](const auto& ref) { return cluster->get(ref, limit).error().code; };
  EXPECT_EQ(code(cluster->submit_object<&divide>({}, 1, 0)), ErrorCode::invalid_argument);
  EXPECT_EQ(code(cluster->submit_object<&throw_out_of_range>({}, "3")), ErrorCode::exception);
  EXPECT_EQ(code(cluster->submit_object<&add>({.node = "elsewhere"}, 1, 2)),
            ErrorCode::unschedulable);
  auto slow = cluster->submit<&sleep_for_ms>({.resources = {.cpus = 2}}, 300);
  EXPECT_EQ(code(cluster->submit_object<&add>({.timeout = 20ms}, 1, 2)), ErrorCode::timed_out);
  must(slow.get(limit));
}

TEST_F(ResultObjects, keep_the_objects_in_them) {
  const auto cluster = start_cluster();
  auto ref = cluster->submit_object<&put_parts>({}, 3, many);
  std::this_thread::sleep_for(100ms);
  {
    const auto parts = must(cluster->get(ref, limit));
    for (const auto& part : parts.get()) {
      EXPECT_EQ(must(cluster->submit<&sum_of>({}, part).get(limit)), many);
    }
  }
  ref = {};
  EXPECT_TRUE(comes_true([&] { return cluster->objects().counts().shares == 0; }));
}

TEST_F(ResultObjects, are_the_drivers_in_one_process) {
  const auto cluster = start_cluster({.in_process = true});
  const auto ref = cluster->submit_object<&make_floats>({}, file, many, 2.0F);
  const auto twice = cluster->submit_object<&doubled>({}, file, ref);
  EXPECT_EQ(must(cluster->submit<&sum_of>({}, twice).get(limit)), 4.0 * many);
}

}  // namespace
}  // namespace troupe::test
