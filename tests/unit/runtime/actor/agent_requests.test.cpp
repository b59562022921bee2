#include "runtime/actor/agent_requests.hpp"

#include <variant>
#include <vector>

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include "runtime/actor/cluster.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;

/// An agent that answers each request as it is sent, or never.
class AgentRequestsTest : public testing::Test {
 protected:
  void tell(const ControlMessage& message) {
    sent_.push_back(message);
    if (answer_) answer_(message);
  }
  template <class Request>
  const Request& sent(std::size_t number) const {
    return std::get<Request>(sent_.at(number));
  }

  std::vector<ControlMessage> sent_;
  std::function<void(const ControlMessage&)> answer_;
  AgentRequests requests_{[this](const ControlMessage& message) { tell(message); }, 20s};
};

TEST_F(AgentRequestsTest, get_a_region_or_why_there_is_none) {
  bool is_there = true;
  answer_ = [&](const ControlMessage& message) {
    const auto& ask = std::get<RegionRequest>(message);
    RegionReply reply{ask.request, is_there, ErrorCode::resource_exhausted, "no memory"};
    requests_.on_reply(reply, UniqueFd(is_there ? ::eventfd(0, EFD_CLOEXEC) : -1));
  };
  const auto region = requests_.region("blocks", 4096);
  ASSERT_TRUE(region.ok()) << region.error().message;
  EXPECT_GE(region->get(), 0);
  EXPECT_EQ(sent<RegionRequest>(0).name, "blocks");
  EXPECT_EQ(sent<RegionRequest>(0).bytes, 4096U);
  EXPECT_FALSE(sent<RegionRequest>(0).release);
  EXPECT_TRUE(requests_.release_regions("blo").ok());
  EXPECT_TRUE(sent<RegionRequest>(1).release);
  is_there = false;
  const auto refused = requests_.region("blocks", 4096);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted);
}

TEST_F(AgentRequestsTest, tell_the_answers_of_several_apart) {
  std::vector<Result<Key>> keys;
  const auto note = [&](Result<Key> key) { keys.push_back(std::move(key)); };
  requests_.call_key("first", note);
  requests_.call_key("second", note);
  KeyReply reply{sent<CallKeyRequest>(1).request, true, {}, ErrorCode::internal, ""};
  reply.key.bytes[0] = std::byte{2};
  requests_.on_reply(reply);
  requests_.on_reply(reply);  // to none that is open
  ASSERT_EQ(keys.size(), 1U);
  EXPECT_EQ((*keys[0])[0], std::byte{2});
  requests_.on_reply(KeyReply{
      sent<CallKeyRequest>(0).request, false, {}, ErrorCode::permission_denied, "not yours"});
  ASSERT_EQ(keys.size(), 2U);
  EXPECT_EQ(keys[1].error().code, ErrorCode::permission_denied);
}

TEST_F(AgentRequestsTest, spawn_and_refuse_arguments_that_no_message_carries) {
  std::vector<Result<ActorAddress>> spawned;
  const auto note = [&](Result<ActorAddress> actor) { spawned.push_back(std::move(actor)); };
  requests_.spawn(3, {.name = "a"}, "Counter", {}, note);
  EXPECT_EQ(sent<SpawnRequest>(0).owner, 3U);
  EXPECT_EQ(sent<SpawnRequest>(0).type, "Counter");
  SpawnReply reply{.request = sent<SpawnRequest>(0).request, .ok = true};
  reply.actor.id = 9;
  requests_.on_reply(reply);
  ASSERT_EQ(spawned.size(), 1U);
  EXPECT_EQ(spawned[0]->id, 9U);
  requests_.spawn(3, {}, "Counter", {Bytes(std::size_t{256} << 20), {}}, note);
  ASSERT_EQ(spawned.size(), 2U);
  EXPECT_EQ(spawned[1].error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(sent_.size(), 1U);
}

TEST_F(AgentRequestsTest, give_up_on_an_agent_that_does_not_answer) {
  AgentRequests requests([](const ControlMessage&) {}, 1ms);
  EXPECT_EQ(requests.channel_key(1, {}).error().code, ErrorCode::timed_out);
}

}  // namespace
}  // namespace troupe
