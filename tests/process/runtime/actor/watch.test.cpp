#include <csignal>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/runtime/actor/test_actors.hpp"
#include "tests/support/blocked_callback.hpp"

namespace troupe::test {

TEST(Watch, tells_a_killed_actor_once_with_name_node_pid_and_signal) {
  const auto cluster = start_cluster();
  const auto counter = must(cluster->spawn<Counter>({.name = "victim"}, 0).get(limit));
  const int pid = must(counter.call<&Counter::pid>().get(limit));
  std::atomic<int> told = 0;
  Promise<ActorDown> promise;
  const auto token = cluster->watch(counter, [&](const ActorDown& down) {
    ++told;
    promise.complete(down);
  });
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  const auto down = must(promise.future().get(limit));
  EXPECT_EQ(down.name, "victim");
  EXPECT_EQ(down.node, "node0");
  EXPECT_EQ(down.pid, pid);
  EXPECT_EQ(down.cause, DownCause::signal);
  EXPECT_EQ(down.code, SIGKILL);
  EXPECT_NE(down.message.find("SIGKILL"), std::string::npos) << down.message;
  Promise<ActorDown> late;
  const auto late_token =
      cluster->watch(counter, [&](const ActorDown& again) { late.complete(again); });
  EXPECT_EQ(must(late.future().get(limit)).message, down.message)
      << "a watch on a dead actor is told too";
  EXPECT_EQ(told, 1);
}

TEST(Watch, tells_stopped_and_exited_actors_apart) {
  const auto cluster = start_cluster();
  const auto a = must(cluster->spawn<Insider>({}).get(limit));
  const auto b = must(cluster->spawn<Insider>({.process = "p"}).get(limit));
  const auto other = must(cluster->spawn<Insider>({.process = "p"}).get(limit));
  Promise<ActorDown> stopped, exited;
  const auto token_a = cluster->watch(a, [&](const ActorDown& down) { stopped.complete(down); });
  const auto token_b = cluster->watch(b, [&](const ActorDown& down) { exited.complete(down); });
  ASSERT_TRUE(cluster->stop(a).ok());
  EXPECT_EQ(must(stopped.future().get(limit)).cause, DownCause::stopped);
  ASSERT_TRUE(b.call<&Insider::leave>("had enough").get(limit).ok());
  const auto down = must(exited.future().get(limit));
  EXPECT_EQ(down.cause, DownCause::exited);
  EXPECT_NE(down.message.find("had enough"), std::string::npos) << down.message;
  EXPECT_EQ(b.call<&Insider::pid>().get(limit).error().code, ErrorCode::actor_died);
  EXPECT_TRUE(other.call<&Insider::pid>().get(limit).ok());
}

TEST(Watch, tells_of_an_actor_that_asked_to_end_and_hangs_and_its_process_is_gone) {
  const auto cluster = start_cluster();
  const auto leaver = must(cluster->spawn<Leaver>({.name = "leaver"}, "").get(limit));
  const int pid = must(leaver.call<&Leaver::pid>().get(limit));
  Promise<ActorDown> ended;
  const auto token = cluster->watch(leaver, [&](const ActorDown& down) { ended.complete(down); });
  leaver.call<&Leaver::leave_and_hang>();
  const auto down = must(ended.future().get(limit));
  EXPECT_EQ(down.cause, DownCause::exited);
  EXPECT_THAT(down.message, testing::HasSubstr("wants to go"));
  EXPECT_THAT(down.message, testing::HasSubstr("has not ended within"));
  const auto gone = [&] { return ::kill(pid, 0) != 0; };
  for (int i = 0; i < 200 && !gone(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(gone());
}

TEST(Watch, works_inside_other_actors) {
  const auto cluster = start_cluster();
  const auto watcher = must(cluster->spawn<Insider>({}).get(limit));
  const auto counter = must(cluster->spawn<Counter>({.name = "victim"}, 0).get(limit));
  auto told = watcher.call<&Insider::watch_until_down>(counter);
  ASSERT_TRUE(cluster->kill(counter).ok());
  EXPECT_NE(must(told.get(limit)).find("SIGKILL"), std::string::npos);
  const auto late_watcher = must(cluster->spawn<Insider>({}).get(limit));
  EXPECT_NE(must(late_watcher.call<&Insider::watch_until_down>(counter).get(limit)).find("victim"),
            std::string::npos)
      << "a process that started after the death learns of it";
}

TEST(Watch, whose_callback_blocks_delays_no_stop_of_an_actor) {
  const auto cluster = start_cluster();
  const auto first = must(cluster->spawn<Counter>({}, 0).get(limit));
  const auto second = must(cluster->spawn<Counter>({}, 0).get(limit));
  const auto blocked = std::make_shared<BlockedCallback>();
  const auto token = cluster->watch(first, [blocked](const ActorDown&) { blocked->block(); });
  ASSERT_TRUE(cluster->kill(first).ok());
  ASSERT_TRUE(blocked->has_begun());
  const auto stopped = cluster->stop(second, 5s);
  EXPECT_TRUE(stopped.ok()) << stopped.error().message;
  blocked->go_on();
}

TEST(Watch, is_not_told_after_its_token_is_gone) {
  const auto cluster = start_cluster();
  const auto counter = must(cluster->spawn<Counter>({}, 0).get(limit));
  std::atomic<bool> told = false;
  {
    const auto token = cluster->watch(counter, [&](const ActorDown&) { told = true; });
  }
  Promise<ActorDown> promise;
  const auto token =
      cluster->watch(counter, [&](const ActorDown& down) { promise.complete(down); });
  ASSERT_TRUE(cluster->kill(counter).ok());
  ASSERT_TRUE(promise.future().get(limit).ok());
  EXPECT_FALSE(told);
}

}  // namespace troupe::test
