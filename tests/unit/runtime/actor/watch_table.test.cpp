#include "runtime/actor/watch_table.hpp"

#include <future>
#include <optional>

#include <gtest/gtest.h>

#include "tests/support/announced_wait.hpp"

namespace troupe {
namespace {

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

}  // namespace
}  // namespace troupe
