#include "runtime/actor/watch_table.hpp"

#include <atomic>
#include <future>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/announced_wait.hpp"
#include "tests/support/blocked_callback.hpp"

namespace troupe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

std::optional<ActorDown> nobody_is_down(ActorId) { return std::nullopt; }

TEST(WatchTable, the_wait_for_a_callback_that_runs_is_announced) {
  WatchTable table([](ActorId) { return std::nullopt; });
  std::optional<std::promise<void>> begun, go_on;
  std::optional<WatchToken> token;
  const auto wait = [&] {
    begun.emplace();
    go_on.emplace();
    token = table.watch(7, [&](const ActorDown&) {
      begun->set_value();
      go_on->get_future().wait();
    });
    table.on_down({.id = 7});
    begun->get_future().wait();
    token.reset();
  };
  EXPECT_LT(test::least_ms_behind(wait, [&] { go_on->set_value(); }),
            test::least_ms_to_find_a_wait / 2);
}

TEST(WatchTable, leaves_a_callback_that_blocks_behind_and_says_whose) {
  const auto blocked = std::make_shared<test::BlockedCallback>();
  WatchToken token;
  std::atomic<bool> next_was_told = false;
  testing::internal::CaptureStderr();
  {
    WatchTable table(nobody_is_down, 50ms);
    token = table.watch(7, [blocked](const ActorDown&) { blocked->block(); });
    const auto next = table.watch(8, [&](const ActorDown&) { next_was_told = true; });
    table.on_down({.id = 7, .name = "counter"});
    table.on_down({.id = 8, .name = "other"});
    ASSERT_TRUE(blocked->has_begun());
    table.stop();
  }
  EXPECT_FALSE(blocked->has_ended());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("leaves_a_callback_that_blocks"),
                    HasSubstr("watch of actor 'counter'"), HasSubstr("left behind")));
  std::thread ends_later([&] { blocked->go_on(); });
  token.reset();
  EXPECT_TRUE(blocked->has_ended()) << "the token waits for it as always";
  EXPECT_FALSE(next_was_told);
  ends_later.join();
}

TEST(WatchTable, lets_a_callback_that_was_left_behind_end_its_own_watch) {
  const auto blocked = std::make_shared<test::BlockedCallback>();
  const auto token = std::make_shared<WatchToken>();
  std::promise<void> ended;
  {
    WatchTable table(nobody_is_down, 1ms);
    *token = table.watch(7, [&ended, blocked, token](const ActorDown&) {
      blocked->block();
      token->reset();
      ended.set_value();
    });
    table.on_down({.id = 7});
    ASSERT_TRUE(blocked->has_begun());
  }
  blocked->go_on();
  EXPECT_EQ(ended.get_future().wait_for(20s), std::future_status::ready);
}

TEST(WatchTable, waits_for_a_callback_that_returns_in_time) {
  std::promise<void> begun;
  std::atomic<bool> has_ended = false;
  WatchTable table(nobody_is_down, 20s);
  std::atomic<bool> is_stopped = false;
  const auto token = table.watch(7, [&](const ActorDown&) {
    begun.set_value();
    is_stopped.wait(false);
    has_ended = true;
  });
  table.on_down({.id = 7});
  begun.get_future().wait();
  std::thread stops([&] {
    is_stopped = true;
    is_stopped.notify_all();
  });
  table.stop();
  EXPECT_TRUE(has_ended);
  stops.join();
}

TEST(WatchTable, calls_what_does_not_block_at_once_although_another_callback_blocks) {
  const auto blocked = std::make_shared<test::BlockedCallback>();
  WatchTable table(nobody_is_down);
  const auto first = table.watch(7, [blocked](const ActorDown&) { blocked->block(); });
  table.on_down({.id = 7});
  ASSERT_TRUE(blocked->has_begun());
  std::vector<std::uint32_t> told;
  auto second =
      table.watch_at_once(8, [&](const ActorDown& down) { told.push_back(down.incarnation); });
  table.on_down({.id = 8, .incarnation = 1, .restarts = true});
  table.on_down({.id = 8, .incarnation = 2});
  EXPECT_THAT(told, testing::ElementsAre(1, 2));
  second = table.watch_at_once(9, [&](const ActorDown&) { told.push_back(0); });
  second.reset();
  table.on_down({.id = 9});
  EXPECT_EQ(told.size(), 2U);
  blocked->go_on();
}

TEST(WatchTable, may_be_stopped_by_a_callback) {
  std::promise<void> ended;
  WatchTable table(nobody_is_down, 20s);
  const auto token = table.watch(7, [&](const ActorDown&) {
    table.stop();
    ended.set_value();
  });
  table.on_down({.id = 7});
  EXPECT_EQ(ended.get_future().wait_for(20s), std::future_status::ready);
}

}  // namespace
}  // namespace troupe
