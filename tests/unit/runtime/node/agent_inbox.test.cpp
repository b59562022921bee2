#include "runtime/node/agent_inbox.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(AgentInbox, gives_messages_in_order) {
  Inbox inbox;
  inbox.push(Suspend{});
  inbox.push(Resume{});
  EXPECT_TRUE(std::holds_alternative<Suspend>(*inbox.take()));
  EXPECT_TRUE(std::holds_alternative<Resume>(*inbox.take()));
  EXPECT_FALSE(inbox.take().has_value());
}

TEST(AgentInbox, takes_an_agent_that_reads_nothing_for_one_without_a_driver) {
  Inbox inbox;
  for (std::size_t i = 0; i < Inbox::max_messages; ++i) inbox.push(Suspend{});
  EXPECT_FALSE(inbox.driver_lost().has_value());
  inbox.push(Suspend{});
  EXPECT_EQ(inbox.driver_lost(), "this agent has not read its messages");
}

}  // namespace
}  // namespace troupe
