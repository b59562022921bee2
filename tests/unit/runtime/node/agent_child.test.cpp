#include "runtime/node/agent_child.hpp"

#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/epoll.h>

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

/// A child without a process, its other end and the events of both.
struct PolledChild : ::testing::Test {
  /// The events that there are now: process and epoll's bits.
  std::vector<std::pair<ProcessId, std::uint32_t>> events() const {
    epoll_event ready[4];
    const int count = ::epoll_wait(epoll.get(), ready, 4, 0);
    std::vector<std::pair<ProcessId, std::uint32_t>> all;
    for (int i = 0; i < count; ++i) {
      const auto event = AgentChild::event_of(ready[i].data.u64);
      EXPECT_FALSE(event.is_end);
      const std::uint32_t bits = ready[i].events;  // packed there
      all.emplace_back(event.process, bits);
    }
    return all;
  }
  using Events = std::vector<std::pair<ProcessId, std::uint32_t>>;

  std::pair<UniqueFd, UniqueFd> ends = *ChildChannel::make_pair();
  const UniqueFd epoll{::epoll_create1(EPOLL_CLOEXEC)};
  AgentChild child{std::make_unique<ChildChannel>(std::move(ends.first)), "worker", "call-name",
                   std::chrono::milliseconds(1000)};
  std::unique_ptr<ChildChannel> other = std::make_unique<ChildChannel>(std::move(ends.second));
};

TEST_F(PolledChild, is_an_event_only_while_it_has_something_to_read_or_to_write) {
  child.begin_polling(epoll.get(), 7);
  EXPECT_EQ(events(), Events());
  ASSERT_TRUE(other->send(encode_message(Heartbeat{})).ok());
  EXPECT_EQ(events(), (Events{{7, EPOLLIN}}));
  EXPECT_EQ(child.exchange().size(), 1U);
  EXPECT_EQ(events(), Events());
  StartActor large;
  large.arguments = Bytes(std::size_t{4} << 20);  // more than the kernel takes
  child.send(large);
  EXPECT_EQ(events(), Events()) << "nobody reads";
  std::size_t read = 0;
  for (int i = 0; i < 10000 && read == 0; ++i) {
    read = other->receive()->size();
    if (!events().empty()) {
      EXPECT_EQ(events(), (Events{{7, EPOLLOUT}}));
      child.exchange();
    }
  }
  EXPECT_EQ(read, 1U);
  EXPECT_EQ(events(), Events());
}

TEST_F(PolledChild, is_no_event_any_more_once_its_channel_is_over) {
  child.begin_polling(epoll.get(), 7);
  other.reset();
  EXPECT_EQ(events().size(), 1U);
  EXPECT_TRUE(child.exchange().empty());
  EXPECT_EQ(events(), Events());
}

TEST_F(PolledChild, is_an_event_when_its_process_has_ended_which_can_wait) {
  child.begin_polling(epoll.get(), 7);
  child.set_process(*ChildProcess::start({.arguments = {"true"}, .program = "true"}));
  epoll_event ready;
  ASSERT_EQ(::epoll_wait(epoll.get(), &ready, 1, 10000), 1);
  const auto event = AgentChild::event_of(ready.data.u64);
  EXPECT_EQ(event.process, 7U);
  EXPECT_TRUE(event.is_end);
  child.note_unreaped();
  EXPECT_EQ(events(), Events());
  child.tend();
  EXPECT_EQ(::epoll_wait(epoll.get(), &ready, 1, 0), 1);
}

}  // namespace
}  // namespace troupe
