#include <algorithm>

#include <gtest/gtest.h>

#include "tests/process/runtime/call/patient.hpp"

namespace troupe::test {
namespace {

TEST(CallErrors, tell_the_type_of_an_exception) {
  const auto cluster = start_cluster();
  const auto patient = must(cluster->spawn<Patient>({}).get(limit));
  const auto thrown = patient.call<&Patient::throw_out_of_range>().get(limit);
  ASSERT_FALSE(thrown.ok());
  EXPECT_EQ(thrown.error().code, ErrorCode::exception);
  EXPECT_NE(thrown.error().message.find("std::out_of_range: "), std::string::npos)
      << thrown.error().message;
}

TEST(CallErrors, tell_an_actor_that_is_gone_from_one_that_is_started_again) {
  const auto cluster = start_cluster();
  const auto mortal = must(cluster->spawn<Patient>({.name = "mortal"}).get(limit));
  const auto phoenix =
      must(cluster->spawn<Patient>({.name = "phoenix", .max_restarts = 1}).get(limit));
  const auto died = mortal.call<&Patient::end_process>().get(limit);
  ASSERT_FALSE(died.ok());
  EXPECT_EQ(died.error().code, ErrorCode::actor_died) << died.error().message;
  EXPECT_NE(died.error().message.find("code 3"), std::string::npos) << died.error().message;
  const auto restarts = phoenix.call<&Patient::end_process>().get(limit);
  ASSERT_FALSE(restarts.ok());
  EXPECT_EQ(restarts.error().code, ErrorCode::actor_unavailable) << restarts.error().message;
  EXPECT_TRUE(phoenix.call<&Patient::pid>().get(limit).ok());
}

TEST(CallErrors, tell_what_no_node_can_hold_from_what_is_not_free) {
  ClusterOptions options;
  options.nodes = {{"left", 2, {}}, {"right", 1, {}}};
  const auto cluster = start_cluster(std::move(options));
  const auto never = cluster->spawn<Patient>({.resources = {.cpus = 3}}).get(limit);
  ASSERT_FALSE(never.ok());
  EXPECT_EQ(never.error().code, ErrorCode::unschedulable) << never.error().message;
  const auto first = must(cluster->spawn<Patient>({.resources = {.cpus = 2}}).get(limit));
  const auto later = cluster->spawn<Patient>({.resources = {.cpus = 2}}).get(limit);
  ASSERT_FALSE(later.ok());
  EXPECT_EQ(later.error().code, ErrorCode::resource_exhausted) << later.error().message;
}

TEST(CallDeadlines, drop_a_call_that_is_still_queued) {
  const auto cluster = start_cluster();
  const auto patient = must(cluster->spawn<Patient>({}).get(limit));
  auto blocks = patient.call<&Patient::wait_until_cancelled>();
  auto late = patient.with({.timeout = 50ms}).call<&Patient::record>(1);
  auto in_time = patient.with({.timeout = limit}).call<&Patient::record>(2);
  const auto missed = late.get(limit);
  ASSERT_FALSE(missed.ok());
  EXPECT_EQ(missed.error().code, ErrorCode::timed_out) << missed.error().message;
  EXPECT_FALSE(blocks.ready());
  blocks.cancel();
  EXPECT_TRUE(must(blocks.get(limit)));
  EXPECT_TRUE(in_time.get(limit).ok());
  EXPECT_EQ(must(patient.call<&Patient::numbers>().get(limit)), std::vector<int>{2});
}

TEST(CallDeadlines, are_told_to_the_method_and_inherited_by_its_calls) {
  const auto cluster = start_cluster();
  const auto first = must(cluster->spawn<Patient>({}).get(limit));
  const auto second = must(cluster->spawn<Patient>({}).get(limit));
  EXPECT_EQ(must(first.call<&Patient::remaining_ms>().get(limit)), -1);
  const auto hour = first.with({.timeout = 1h});
  EXPECT_GT(must(hour.call<&Patient::remaining_ms>().get(limit)), 3'000'000);
  const auto inherited = must(hour.call<&Patient::remaining_ms_of>(second, 0).get(limit));
  EXPECT_GT(inherited, 3'000'000);
  EXPECT_LE(inherited, 3'600'000);
  const auto nearer = must(hour.call<&Patient::remaining_ms_of>(second, 1'800'000).get(limit));
  EXPECT_GT(nearer, 0);
  EXPECT_LE(nearer, 1'800'000);
  const auto not_later = must(hour.call<&Patient::remaining_ms_of>(second, 7'200'000).get(limit));
  EXPECT_LE(not_later, 3'600'000);
  EXPECT_TRUE(first.with({.timeout = 50ms}).call<&Patient::wait_until_cancelled>().wait(limit))
      << "the deadline ends the wait";
  EXPECT_TRUE(first.call<&Patient::pid>().get(limit).ok()) << "the method has seen it, too";
}

TEST(CallCancel, answers_a_queued_call_at_once_and_tells_the_running_one) {
  const auto cluster = start_cluster();
  const auto remote = must(cluster->spawn<Patient>({}).get(limit));
  const auto local = must(cluster->spawn_local<Patient>({}).get(limit));
  for (const auto& patient : {remote, local}) {
    auto running = patient.call<&Patient::wait_until_cancelled>();
    auto queued = patient.call<&Patient::record>(1);
    EXPECT_FALSE(queued.wait(20ms));
    queued.cancel();
    EXPECT_EQ(queued.get(limit).error().code, ErrorCode::cancelled);
    EXPECT_FALSE(running.ready());
    running.cancel();
    EXPECT_TRUE(must(running.get(limit)));
    running.cancel();  // does nothing any more
    EXPECT_TRUE(must(patient.call<&Patient::numbers>().get(limit)).empty());
  }
}

TEST(CallRetries, run_a_call_once_although_its_link_breaks) {
  const auto cluster = start_cluster();
  const auto patient =
      must(cluster->spawn<Patient>({.process = "ward", .max_call_retries = -1}).get(limit));
  const auto cutter = must(cluster->spawn<Cutter>({.process = "ward"}).get(limit));
  const int pid = must(patient.call<&Patient::pid>().get(limit));
  std::vector<Future<int>> calls;
  int cut = 0;
  for (int i = 0; i < 200; ++i) {
    calls.push_back(patient.call<&Patient::record_slowly>(i, 1));
    if (i % 50 == 25) {
      const auto links = cutter.with({.max_retries = -1}).call<&Cutter::cut_links>().get(limit);
      ASSERT_TRUE(links.ok()) << links.error().message;
      cut += *links;
    }
  }
  EXPECT_GT(cut, 0);
  ASSERT_TRUE(wait_all(calls, limit).ok());
  std::vector<int> expected;
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(must(calls[static_cast<std::size_t>(i)].get(0s)), i);
    expected.push_back(i);
  }
  EXPECT_EQ(must(patient.call<&Patient::numbers>().get(limit)), expected)
      << "each once, and in order";
  EXPECT_EQ(must(patient.call<&Patient::pid>().get(limit)), pid);
  // A call that may not be made again fails with its link.
  auto once = patient.with({.max_retries = 0}).call<&Patient::wait_until_cancelled>();
  must(cutter.with({.max_retries = -1}).call<&Cutter::cut_links>().get(limit));
  EXPECT_EQ(once.get(limit).error().code, ErrorCode::actor_unavailable);
}

TEST(CallRetries, are_made_by_the_next_incarnation_as_often_as_the_actor_allows) {
  const auto cluster = start_cluster();
  const auto phoenix =
      must(cluster->spawn<Patient>({.max_restarts = -1, .max_call_retries = 1}).get(limit));
  auto slow = phoenix.call<&Patient::record_slowly>(7, 2000);
  auto behind = phoenix.call<&Patient::numbers>();
  EXPECT_FALSE(slow.wait(100ms));
  ASSERT_TRUE(cluster->kill(phoenix).ok());
  EXPECT_EQ(must(slow.get(limit)), 7);
  EXPECT_EQ(must(behind.get(limit)), std::vector<int>{7});
  const auto fatal = phoenix.with({.max_retries = 2}).call<&Patient::end_process>().get(limit);
  ASSERT_FALSE(fatal.ok()) << "it ends each incarnation that runs it";
  EXPECT_EQ(fatal.error().code, ErrorCode::actor_unavailable) << fatal.error().message;
  EXPECT_TRUE(phoenix.call<&Patient::pid>().get(limit).ok());
}

}  // namespace
}  // namespace troupe::test
