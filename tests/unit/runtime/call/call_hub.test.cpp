#include "runtime/call/call_hub.hpp"

#include <atomic>
#include <latch>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "runtime/call/future.hpp"
#include "runtime/call/unix_transport.hpp"

namespace troupe {

using namespace std::chrono_literals;

/// Answers every call with its own arguments, at once.
class Mirror final : public CallTarget {
 public:
  void deliver(IncomingCall call) override { call.answer(std::move(call.arguments)); }
};

/// Keeps a call until the test answers it.
class Holder final : public CallTarget {
 public:
  void deliver(IncomingCall call) override { held_.complete(std::move(call)); }
  IncomingCall take() { return *held_.future().get(10s); }

 private:
  Promise<IncomingCall> held_;
};

std::shared_ptr<CallHub> make_hub(const std::string& name, const Key& key,
                                  const Identity& identity = {}, const CallHub::Options& calls = {},
                                  UnixTransport::Options options = {}) {
  options.keys =
      call_keys(*JobKeys::from_secret(key), fmt::format("troupe-test-{}-{}", ::getpid(), name));
  options.identity = identity;
  return *CallHub::create(std::make_unique<UnixTransport>(std::move(options)), calls);
}

Future<Bytes> begin_call(CallHub& hub, const std::string& endpoint, ActorId id, Bytes arguments) {
  Promise<Bytes> promise;
  hub.call({id, endpoint, "mirror", "Mirror"}, 0, std::move(arguments),
           [promise](Result<Bytes> answer) { promise.complete(std::move(answer)); });
  return promise.future();
}

Result<Bytes> call(CallHub& hub, const std::string& endpoint, ActorId id, Bytes arguments) {
  return begin_call(hub, endpoint, id, std::move(arguments)).get(10s);
}

TEST(CallHub, calls_a_target_of_another_hub_and_refuses_unknown_ones) {
  const auto server = make_hub("server", Key{});
  const auto client = make_hub("client", Key{});
  server->add_target(7, std::make_shared<Mirror>());
  const auto answer = call(*client, server->endpoint(), 7, encode(42));
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(*answer, encode(42));
  EXPECT_EQ(call(*client, server->endpoint(), 8, {}).error().code, ErrorCode::peer_died);
  server->stop();
  EXPECT_EQ(call(*client, server->endpoint(), 7, {}).error().code, ErrorCode::peer_died);
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
  EXPECT_NE(mismatch.error().message.find("one build"), std::string::npos)
      << mismatch.error().message;
  for (const auto& hub : {server, stranger, other_build}) hub->stop();
}

TEST(CallHub, fails_calls_with_the_cause_that_supervision_tells) {
  const auto client = make_hub("client", Key{});
  client->mark_down(7, "it was eaten");
  const auto answer = call(*client, "troupe-test-nobody", 7, {});
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::peer_died);
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
  EXPECT_EQ(hopeless.get(10s).error().code, ErrorCode::peer_died);
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
  EXPECT_EQ(server->flush(20ms).error().code, ErrorCode::timeout) << "nobody reads yet";
  go_on.count_down();
  EXPECT_TRUE(server->flush(10s).ok());
  server->stop();
  const auto value = answer.get(10s);
  ASSERT_TRUE(value.ok()) << value.error().message;
  EXPECT_EQ(*value, large);
  client->stop();
}

TEST(CallHub, calls_to_a_process_that_reads_nothing_fail_once_its_link_is_full) {
  UnixTransport::Options narrow;
  narrow.max_queued_bytes = std::size_t{1} << 20;
  const auto server = make_hub("server", Key{});
  const auto client = make_hub("client", Key{}, {}, {.credit_timeout = 50ms}, narrow);
  server->add_target(6, std::make_shared<Mirror>());
  server->add_target(7, std::make_shared<Mirror>());
  // The server's thread, which reads, is blocked by an answer of its own.
  client->add_target(8, std::make_shared<Mirror>());
  std::latch busy(1), go_on(1);
  server->call({8, client->endpoint(), "mirror", "Mirror"}, 0, {}, [&](const Result<Bytes>&) {
    busy.count_down();
    go_on.wait();
  });
  busy.wait();
  const Bytes large(std::size_t{512} << 10, std::byte{3});
  std::vector<Future<Bytes>> sent;
  std::optional<Error> refusal;
  const auto start = std::chrono::steady_clock::now();
  while (!refusal && sent.size() < 100) {
    auto answer = begin_call(*client, server->endpoint(), 7, large);
    if (answer.ready()) {
      refusal = answer.get(0s).error();
    } else {
      sent.push_back(std::move(answer));
    }
  }
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->code, ErrorCode::resource_exhausted) << refusal->message;
  EXPECT_NE(refusal->message.find("1048576"), std::string::npos) << refusal->message;
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s) << "credit_timeout counts";
  const auto small = begin_call(*client, server->endpoint(), 6, Bytes(1)).get(10s);
  ASSERT_FALSE(small.ok()) << "calls to all actors of the process share the link";
  EXPECT_EQ(small.error().code, ErrorCode::resource_exhausted) << small.error().message;
  go_on.count_down();
  for (auto& answer : sent) EXPECT_TRUE(answer.get(10s).ok());
  EXPECT_TRUE(call(*client, server->endpoint(), 7, large).ok());
  for (const auto& hub : {server, client}) hub->stop();
}

/// How long 2,000 calls take, one after the other, while so many threads wait for the credit of
/// another actor, [ms].
double ms_of_calls_beside(int waiting) {
  const auto server = make_hub("server", Key{});
  const auto client = make_hub("client", Key{}, {}, {.credits = 1, .credit_timeout = 60s});
  server->add_target(6, std::make_shared<Mirror>());
  server->add_target(7, std::make_shared<Holder>());
  (void)begin_call(*client, server->endpoint(), 7, {});  // has the only credit
  std::latch begun(waiting + 1);
  std::vector<std::jthread> threads;
  for (int i = 0; i < waiting; ++i) {
    threads.emplace_back([&] {
      begun.count_down();
      (void)begin_call(*client, server->endpoint(), 7, {});
    });
  }
  begun.arrive_and_wait();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 2000; ++i) {
    EXPECT_TRUE(call(*client, server->endpoint(), 6, {}).ok());
  }
  const auto took = std::chrono::steady_clock::now() - start;
  client->stop();
  server->stop();
  return std::chrono::duration<double, std::milli>(took).count();
}

TEST(CallHub, callers_that_wait_get_all_credits_that_come_back_whatever_their_bytes) {
  const auto server = make_hub("server", Key{});
  const auto client =
      make_hub("client", Key{}, {}, {.credits = 4, .credit_bytes = 1000, .credit_timeout = 60s});
  server->add_target(7, std::make_shared<Mirror>());
  std::atomic<int> answered = 0;
  std::vector<std::jthread> threads;
  for (const std::size_t bytes : {10, 990, 400, 700, 1, 2000, 10, 10, 500, 500, 900, 3}) {
    threads.emplace_back([&, bytes] {
      for (int i = 0; i < 300; ++i) {
        if (call(*client, server->endpoint(), 7, Bytes(bytes)).ok()) ++answered;
      }
    });
  }
  const auto start = std::chrono::steady_clock::now();
  threads.clear();
  EXPECT_EQ(answered, 12 * 300);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s) << "nobody sleeps over a credit";
  for (const auto& hub : {server, client}) hub->stop();
}

TEST(CallHub, answers_wake_nobody_who_waits_for_another_actor) {
  const double alone = ms_of_calls_beside(0);
  EXPECT_LT(ms_of_calls_beside(300), 3 * alone + 50);
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
  EXPECT_EQ(begin_call_to(*client, address, {}).get(10s).error().code, ErrorCode::peer_died);
  client->mark_moved(restartable(7, "elsewhere", 1));
  EXPECT_EQ(begin_call_to(*client, address, {}).get(10s).error().code, ErrorCode::peer_died);
  client->stop();
}

TEST(CallHub, answers_calls_that_wait_for_a_restart_when_it_stops) {
  const auto client = make_hub("client", Key{});
  auto waiting = begin_call_to(*client, restartable(7, "nowhere", 0), {});
  client->stop();
  EXPECT_EQ(waiting.get(10s).error().code, ErrorCode::cancelled);
}

TEST(CallHub, bounds_the_bytes_of_unanswered_calls_but_lets_one_of_any_size_through) {
  const auto server = make_hub("server", Key{});
  const auto client = make_hub("client", Key{}, {}, {.credit_bytes = 1000, .credit_timeout = 50ms});
  const auto holder = std::make_shared<Holder>();
  server->add_target(7, holder);
  auto large = begin_call(*client, server->endpoint(), 7, Bytes(5000));
  IncomingCall held = holder->take();
  const auto refused = call(*client, server->endpoint(), 7, Bytes(1));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted);
  EXPECT_NE(refused.error().message.find("5000 bytes"), std::string::npos)
      << refused.error().message;
  held.answer(Bytes{});
  EXPECT_TRUE(large.get(10s).ok());
  server->remove_target(7);
  server->add_target(7, std::make_shared<Mirror>());
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(call(*client, server->endpoint(), 7, Bytes(600)).ok()) << "credits come back";
  }
  for (const auto& hub : {server, client}) hub->stop();
}

}  // namespace troupe
