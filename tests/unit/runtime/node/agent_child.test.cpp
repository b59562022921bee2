#include "runtime/node/agent_child.hpp"

#include <memory>

#include <gtest/gtest.h>

namespace troupe {
namespace {

AgentChild make_child() {
  auto ends = ChildChannel::make_pair();
  return AgentChild(std::make_unique<ChildChannel>(std::move(ends->first)), "worker", "call-name",
                    std::chrono::milliseconds(1000));
}

TEST(AgentChild, keeps_nothing_of_actors_that_have_ended_or_could_not_be_made) {
  AgentChild child = make_child();
  child.add_actor(1, "lives");
  for (ActorId id = 2; id < 1000; id += 2) {
    child.add_actor(id, "ends");
    child.add_actor(id + 1, "fails");
    EXPECT_TRUE(child.note_message(ActorStarted{id, "endpoint", 7}));
    EXPECT_TRUE(child.note_message(ActorEnded{id, false, ""}));
    EXPECT_TRUE(child.note_message(ActorFailed{id + 1, ErrorCode::internal, "no"}));
  }
  EXPECT_EQ(child.actors().size(), 1U);
  ASSERT_NE(child.find_actor(1), nullptr);
  EXPECT_EQ(*child.find_actor(1), "lives");
}

TEST(AgentChild, speaks_for_an_actor_only_as_long_as_it_is_there) {
  AgentChild child = make_child();
  EXPECT_FALSE(child.note_message(ActorEnded{1, false, ""})) << "it is none of its own";
  child.add_actor(1, "actor");
  EXPECT_TRUE(child.note_message(StopOwned{1, 2}));
  EXPECT_TRUE(child.note_message(ActorEnded{1, false, ""}));
  EXPECT_FALSE(child.note_message(StopOwned{1, 2}));
  child.add_actor(1, "actor");  // its next incarnation
  EXPECT_TRUE(child.note_message(StopOwned{1, 2}));
  EXPECT_TRUE(child.note_message(Heartbeat{})) << "that is about no actor";
}

}  // namespace
}  // namespace troupe
