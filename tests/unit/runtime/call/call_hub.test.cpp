#include "runtime/call/call_hub.hpp"

#include <latch>
#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/runtime/call/call_hubs.hpp"

namespace troupe {

TEST(CallHub, calls_a_target_of_another_hub_and_refuses_unknown_ones) {
  const auto server = make_hub("server", Key{});
  const auto client = make_hub("client", Key{});
  server->add_target(7, std::make_shared<Mirror>());
  const auto answer = call(*client, server->endpoint(), 7, encode(42));
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(*answer, encode(42));
  EXPECT_EQ(call(*client, server->endpoint(), 8, {}).error().code, ErrorCode::actor_died);
  server->stop();
  EXPECT_EQ(call(*client, server->endpoint(), 7, {}).error().code, ErrorCode::actor_unavailable);
  client->stop();
}

TEST(CallHub, refuses_processes_of_other_jobs_and_builds) {
  const auto server = make_hub("server", Key{});
  server->add_target(7, std::make_shared<Mirror>());
  const auto stranger = make_hub("stranger", Key{std::byte{1}});
  const auto refused = call(*stranger, server->endpoint(), 7, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::permission_denied) << refused.error().message;
  const auto other_build = make_hub("other-build", Key{}, {protocol_version, Key{std::byte{9}}});
  const auto mismatch = call(*other_build, server->endpoint(), 7, {});
  ASSERT_FALSE(mismatch.ok());
  EXPECT_NE(mismatch.error().message.find("build 090000000000, this process 000000000000"),
            std::string::npos)
      << mismatch.error().message;
  for (const auto& hub : {server, stranger, other_build}) hub->stop();
}

TEST(CallHub, fails_calls_with_the_cause_that_supervision_tells) {
  const auto client = make_hub("client", Key{});
  client->mark_down(7, "it was eaten");
  const auto answer = call(*client, "troupe-test-nobody", 7, {});
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::actor_died);
  EXPECT_EQ(answer.error().message, "it was eaten");
  client->stop();
}

TEST(CallHub, delivers_the_answer_of_an_actor_that_was_marked_down_before_it_came) {
  const auto server = make_hub("server", Key{});
  const auto client = make_hub("client", Key{});
  const auto holder = std::make_shared<Holder>();
  server->add_target(7, holder);
  auto answer = begin_call(*client, server->endpoint(), 7, {});
  IncomingCall held = holder->take();
  client->mark_down(7, "it ended itself");
  EXPECT_FALSE(answer.wait(100ms)) << "the connection lives, so the answer may still come";
  held.answer(encode(42));
  const auto value = answer.get(10s);
  ASSERT_TRUE(value.ok()) << value.error().message;
  EXPECT_EQ(*value, encode(42));
  EXPECT_EQ(call(*client, server->endpoint(), 7, {}).error().message, "it ended itself");
  for (const auto& hub : {server, client}) hub->stop();
}

TEST(CallHub, reads_the_answers_of_a_process_that_has_ended_however_late_it_is) {
  const auto server = make_hub("server", Key{});
  const auto client = make_hub("client", Key{});
  const auto holder = std::make_shared<Holder>();
  server->add_target(6, std::make_shared<Mirror>());
  server->add_target(7, holder);
  auto answer = begin_call(*client, server->endpoint(), 7, {});
  IncomingCall held = holder->take();

  // The client's thread is blocked while the answer arrives and the server ends.
  std::latch busy(1), go_on(1);
  client->call({6, server->endpoint(), "mirror", "Mirror"}, 0, {}, [&](const Result<Bytes>&) {
    busy.count_down();
    go_on.wait();
  });
  busy.wait();
  held.answer(encode(42));
  ASSERT_TRUE(server->flush(10s).ok());
  server->stop();
  // Calls queued for the dead process cannot be written: that must not hide its earlier answers.
  auto hopeless = begin_call(*client, server->endpoint(), 6, Bytes(std::size_t{4} << 20));
  client->mark_down(7, "it ended itself");
  go_on.count_down();
  const auto value = answer.get(10s);
  ASSERT_TRUE(value.ok()) << value.error().message;
  EXPECT_EQ(*value, encode(42));
  EXPECT_EQ(hopeless.get(10s).error().code, ErrorCode::actor_unavailable);
  client->stop();
}

TEST(CallHub, fails_the_calls_to_a_down_actor_whose_connection_stays_silent) {
  const auto server = make_hub("server", Key{});
  const auto client = make_hub("client", Key{}, {}, {.last_answer_timeout = 50ms});
  const auto holder = std::make_shared<Holder>();
  server->add_target(7, holder);
  auto answer = begin_call(*client, server->endpoint(), 7, {});
  const IncomingCall held = holder->take();
  client->mark_down(7, "it was eaten");
  const auto lost = answer.get(10s);
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().message, "it was eaten");
  for (const auto& hub : {server, client}) hub->stop();
}

TEST(CallHub, forgets_actors_that_ended_long_ago_and_asks_anew_for_their_ends) {
  const auto server = make_hub("server", Key{});
  server->add_target(7, std::make_shared<Mirror>());
  std::vector<ActorId> followed;
  const auto client = make_hub(
      "client", Key{}, {}, {.remembered_ends = 2, .on_first_call = [&](const ActorAddress& actor) {
                              followed.push_back(actor.id);
                            }});
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(call(*client, server->endpoint(), 7, {}).ok());
  EXPECT_EQ(followed, (std::vector<ActorId>{7}));
  client->mark_down(7, "it was eaten");
  EXPECT_EQ(call(*client, server->endpoint(), 7, {}).error().message, "it was eaten");
  for (const ActorId other : {8, 9}) client->mark_down(other, "so was this one");
  EXPECT_TRUE(call(*client, server->endpoint(), 7, {}).ok());
  EXPECT_EQ(followed, (std::vector<ActorId>{7, 7}));
  EXPECT_EQ(call(*client, server->endpoint(), 9, {}).error().message, "so was this one");
  for (const auto& hub : {server, client}) hub->stop();
}

TEST(CallHub, flush_returns_once_a_slow_peer_has_been_sent_everything) {
  const auto server = make_hub("server", Key{});
  const auto client = make_hub("client", Key{});
  server->add_target(6, std::make_shared<Mirror>());
  const auto holder = std::make_shared<Holder>();
  server->add_target(7, holder);
  auto answer = begin_call(*client, server->endpoint(), 7, {});
  IncomingCall held = holder->take();
  std::latch busy(1), go_on(1);
  client->call({6, server->endpoint(), "mirror", "Mirror"}, 0, {}, [&](const Result<Bytes>&) {
    busy.count_down();
    go_on.wait();
  });
  busy.wait();
  const Bytes large(std::size_t{8} << 20, std::byte{3});
  held.answer(large);
  EXPECT_EQ(server->flush(20ms).error().code, ErrorCode::timed_out) << "nobody reads yet";
  go_on.count_down();
  EXPECT_TRUE(server->flush(10s).ok());
  server->stop();
  const auto value = answer.get(10s);
  ASSERT_TRUE(value.ok()) << value.error().message;
  EXPECT_EQ(*value, large);
  client->stop();
}

TEST(CallHub, what_exceeds_the_limit_of_a_frame_fails_alone_and_says_so) {
  UnixTransport::Options small;
  small.max_frame_bytes = 1000;
  const auto server = make_hub("server", Key{}, {}, {}, small);
  const auto client = make_hub("client", Key{});
  const auto holder = std::make_shared<Holder>();
  server->add_target(6, std::make_shared<Mirror>());
  server->add_target(7, holder);
  auto answer = begin_call(*client, server->endpoint(), 7, {});
  IncomingCall held = holder->take();
  held.answer(Bytes(2000));
  const auto refused = answer.get(10s);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument) << refused.error().message;
  EXPECT_NE(refused.error().message.find("exceeds the limit of 1000"), std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(call(*client, server->endpoint(), 6, encode(1)).ok()) << "the connection lives on";

  client->add_target(8, std::make_shared<Mirror>());
  const auto too_large = call(*server, client->endpoint(), 8, Bytes(2000));
  ASSERT_FALSE(too_large.ok());
  EXPECT_EQ(too_large.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(too_large.error().message.find("'mirror'"), std::string::npos)
      << too_large.error().message;
  for (const auto& hub : {server, client}) hub->stop();
}

ActorAddress restartable(ActorId id, const std::string& endpoint, std::uint32_t incarnation) {
  return {id, endpoint, "mirror", "Mirror", incarnation, true};
}

Future<Bytes> begin_call_to(CallHub& hub, const ActorAddress& address, Bytes arguments) {
  Promise<Bytes> promise;
  hub.call(address, 0, std::move(arguments),
           [promise](Result<Bytes> answer) { promise.complete(std::move(answer)); });
  return promise.future();
}

TEST(CallHub, keeps_the_calls_to_an_actor_that_is_restarted_and_sends_them_in_order) {
  const auto first = make_hub("first", Key{});
  const auto second = make_hub("second", Key{});
  const auto client = make_hub("client", Key{});
  const auto holder = std::make_shared<Holder>();
  first->add_target(7, holder);
  const auto address = restartable(7, first->endpoint(), 0);
  auto early = begin_call_to(*client, address, {});
  EXPECT_FALSE(early.wait(50ms)) << "nobody has said where it is";
  client->mark_moved(address);
  const IncomingCall under_way = holder->take();

  client->mark_restarting(7, 0, "it was eaten; it is started again");
  first->stop();
  const auto lost = early.get(10s);
  ASSERT_FALSE(lost.ok()) << "it may have run, so it is not sent again";
  EXPECT_EQ(lost.error().message, "it was eaten; it is started again");
  client->mark_moved(address);  // late news of the first incarnation

  /// Answers with the number of calls so far.
  class Counter final : public CallTarget {
   public:
    void deliver(IncomingCall call) override { call.answer(encode(++calls_)); }

   private:
    int calls_ = 0;
  };
  second->add_target(7, std::make_shared<Counter>());
  std::vector<Future<Bytes>> waiting;
  for (int i = 0; i < 100; ++i) waiting.push_back(begin_call_to(*client, address, {}));
  EXPECT_FALSE(waiting[0].wait(50ms));
  client->mark_moved(restartable(7, second->endpoint(), 1));
  for (int i = 0; i < 100; ++i) waiting.push_back(begin_call_to(*client, address, {}));
  for (int i = 0; i < 200; ++i) {
    const auto answer = waiting[static_cast<std::size_t>(i)].get(10s);
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ(*answer, encode(i + 1));
  }
  for (const auto& hub : {second, client}) hub->stop();
}

TEST(CallHub, fails_the_calls_that_wait_for_an_actor_that_does_not_come_back) {
  const auto client = make_hub("client", Key{}, {}, {.credits = 2, .credit_timeout = 50ms});
  const auto address = restartable(7, "nowhere", 0);
  client->mark_moved(address);
  client->mark_restarting(7, 0, "it was eaten; it is started again");
  auto first = begin_call_to(*client, address, {});
  auto second = begin_call_to(*client, address, {});
  EXPECT_EQ(begin_call_to(*client, address, {}).get(10s).error().code,
            ErrorCode::resource_exhausted)
      << "those that wait use up the credits";
  client->mark_down(7, "it could not be started again");
  for (auto* call : {&first, &second}) {
    EXPECT_EQ(call->get(10s).error().message, "it could not be started again");
  }
  EXPECT_EQ(begin_call_to(*client, address, {}).get(10s).error().code, ErrorCode::actor_died);
  client->mark_moved(restartable(7, "elsewhere", 1));
  EXPECT_EQ(begin_call_to(*client, address, {}).get(10s).error().code, ErrorCode::actor_died);
  client->stop();
}

TEST(CallHub, takes_answers_of_calls_that_outlive_it) {
  auto server = make_hub("server", Key{});
  const auto client = make_hub("client", Key{});
  const auto holder = std::make_shared<Holder>();
  server->add_target(7, holder);
  auto answer = begin_call(*client, server->endpoint(), 7, {});
  const IncomingCall call = holder->take();
  server->stop();
  server.reset();
  call.answer(Bytes(8));
  EXPECT_FALSE(answer.get(10s).ok());
  client->stop();
}

TEST(CallHub, answers_calls_that_wait_for_a_restart_when_it_stops) {
  const auto client = make_hub("client", Key{});
  auto waiting = begin_call_to(*client, restartable(7, "nowhere", 0), {});
  client->stop();
  EXPECT_EQ(waiting.get(10s).error().code, ErrorCode::cancelled);
}

}  // namespace troupe
