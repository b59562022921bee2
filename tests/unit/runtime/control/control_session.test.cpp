#include "runtime/control/control_session.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using ::testing::HasSubstr;
ControlSession agent_session() { return ControlSession::with_agent({"node0", {}}); }

AgentReady right_hello() {
  AgentReady hello;
  hello.node = "node0";
  return hello;
}

std::string refusal_of(ControlSession session, const ControlMessage& message) {
  const auto outcome = session.on_frame(encode_message(message));
  return outcome.ok() ? "" : outcome.error().message;
}

TEST(ControlSession, hands_on_what_an_agent_says_after_its_hello) {
  auto session = agent_session();
  EXPECT_FALSE(session.is_greeted());
  const auto hello = session.on_frame(encode_message(right_hello()));
  ASSERT_TRUE(hello.ok());
  EXPECT_TRUE(session.is_greeted());
  const auto ended = session.on_frame(encode_message(ProcessEnded{.process = 3}));
  ASSERT_TRUE(ended.ok());
  EXPECT_TRUE(std::holds_alternative<ProcessEnded>(*ended));
}

TEST(ControlSession, refuses_an_agent_that_is_not_the_one_that_was_started) {
  AgentReady other_node = right_hello(), other_build = right_hello(),
             other_protocol = right_hello();
  other_node.node = "node1";
  other_build.build[0] = std::byte{1};
  other_protocol.protocol = control_protocol + 1;
  EXPECT_THAT(refusal_of(agent_session(), other_node), HasSubstr("introduces itself as"));
  EXPECT_THAT(refusal_of(agent_session(), other_build),
              HasSubstr("is of another build: it is 010000000000, this driver 000000000000"));
  EXPECT_THAT(refusal_of(agent_session(), other_protocol),
              HasSubstr(fmt::format("control protocol {}, this driver {}", control_protocol + 1,
                                    control_protocol)));
  EXPECT_THAT(refusal_of(agent_session(), Heartbeat{}), HasSubstr("introduce"));
}

TEST(ControlSession, refuses_what_the_other_end_has_no_business_to_say) {
  auto session = agent_session();
  ASSERT_TRUE(session.on_frame(encode_message(right_hello())).ok());
  for (const ControlMessage& message :
       {ControlMessage(StartActor{}), ControlMessage(StopProcess{}), ControlMessage(Shutdown{}),
        ControlMessage(ActorGone{}), ControlMessage(ProcessBootstrap{}),
        ControlMessage(RegionRequest{}), ControlMessage(right_hello())}) {
    EXPECT_NE(refusal_of(session, message), "") << message.index();
  }
  const auto driver = ControlSession::with_driver();
  for (const ControlMessage& message :
       {ControlMessage(right_hello()), ControlMessage(ActorStarted{}),
        ControlMessage(ProcessEnded{}), ControlMessage(RegionReply{})}) {
    EXPECT_NE(refusal_of(driver, message), "") << message.index();
  }
}

TEST(ControlSession, each_message_travels_on_the_edges_it_is_for) {
  EXPECT_FALSE(travels_on(ControlEdge::process_to_agent, ProcessEnded{}));
  EXPECT_FALSE(travels_on(ControlEdge::process_to_agent, AgentReady{}));
  EXPECT_FALSE(travels_on(ControlEdge::agent_to_process, Shutdown{}));
  EXPECT_TRUE(travels_on(ControlEdge::process_to_agent, RegionRequest{}));
  EXPECT_TRUE(travels_on(ControlEdge::process_to_agent, FollowActor{}));
  EXPECT_TRUE(travels_on(ControlEdge::agent_to_driver, FollowActor{}));
  EXPECT_FALSE(travels_on(ControlEdge::driver_to_agent, FollowActor{}));
}

}  // namespace
}  // namespace troupe
