#include "actors/api/losses.hpp"

#include <vector>

#include <gtest/gtest.h>
#include <signal.h>

namespace troupe {
namespace {

ActorDown loss(ActorId id, DownCause cause, int code = 0, std::string node = "left") {
  ActorDown down;
  down.id = id;
  down.cause = cause;
  down.code = code;
  down.node = std::move(node);
  return down;
}

TEST(Losses, name_what_was_done_to_a_process_before_reactions_to_it) {
  const std::vector<ActorDown> downs{loss(1, DownCause::exited),
                                     loss(2, DownCause::signal, SIGKILL),
                                     loss(3, DownCause::unresponsive)};
  EXPECT_EQ(cause_of(downs).id, 2U);
  EXPECT_TRUE(is_consequence(downs[0], downs[1]));
  EXPECT_FALSE(is_consequence(downs[1], downs[1]));
}

TEST(Losses, of_two_killed_processes_are_two_causes) {
  EXPECT_FALSE(
      is_consequence(loss(1, DownCause::signal, SIGKILL), loss(2, DownCause::signal, SIGKILL)));
}

TEST(Losses, of_all_actors_of_a_node_have_one_cause) {
  EXPECT_TRUE(is_consequence(loss(2, DownCause::node_lost), loss(1, DownCause::node_lost)));
  EXPECT_FALSE(
      is_consequence(loss(2, DownCause::node_lost, 0, "right"), loss(1, DownCause::node_lost)));
}

TEST(Losses, began_inside_a_process_that_crashed_and_not_in_one_that_was_killed) {
  const auto began = [](const ActorDown& down) { return began_inside(std::vector{down}); };
  EXPECT_TRUE(began(loss(1, DownCause::signal, SIGSEGV)));
  EXPECT_TRUE(began(loss(1, DownCause::signal, SIGABRT)));
  EXPECT_TRUE(began(loss(1, DownCause::exit_code, 1)));
  EXPECT_TRUE(began(loss(1, DownCause::exited)));
  EXPECT_FALSE(began(loss(1, DownCause::signal, SIGKILL)));
  EXPECT_FALSE(began(loss(1, DownCause::unresponsive)));
  EXPECT_FALSE(began(loss(1, DownCause::node_lost)));
  EXPECT_FALSE(
      began_inside(std::vector{loss(1, DownCause::exited), loss(2, DownCause::signal, SIGKILL)}))
      << "an exit in reaction to a kill";
}

}  // namespace
}  // namespace troupe
