#include <gtest/gtest.h>

#include "tests/unit/runtime/call/cuttable_hubs.hpp"

namespace troupe {
namespace {

constexpr auto limit = 20s;

ActorAddress address_of(const CallHub& server) {
  return {7, server.endpoint(), "ledger", "Ledger"};
}

TEST(Resends, of_a_call_that_runs_take_its_one_answer_over_the_next_link) {
  const auto server = make_hub("server", Key{});
  const auto client = make_cuttable_hub("client");
  const auto holder = std::make_shared<Holder>();
  server->add_target(7, holder);
  auto call = begin_numbered(*client.hub, address_of(*server), {0, 1}, {.max_retries = 1});
  const IncomingCall held = holder->take();  // a second one would break the Holder's promise
  client.transport->cut();
  Deadline deadline(limit);
  while (client.transport->connects() < 2) ASSERT_FALSE(deadline.is_over());
  held.answer(encode(42));
  const auto answer = call.answer.get(limit);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(*answer, encode(42));
  for (const auto& hub : {server, client.hub}) hub->stop();
}

TEST(Resends, of_an_answered_call_get_the_answer_that_was_lost) {
  const auto server = make_hub("server", Key{});
  const auto client = make_cuttable_hub("client");
  const auto ledger = std::make_shared<Ledger>(1);
  server->add_target(7, ledger);
  ledger->pause(true);
  std::vector<OpenCall> calls;
  for (int i = 0; i < 100; ++i) {
    calls.push_back(begin_numbered(*client.hub, address_of(*server), {0, i}, {.max_retries = -1}));
  }
  ASSERT_TRUE(ledger->wait_until_queued(100));
  client.transport->cut();
  ledger->pause(false);  // the answers go to a link that is gone, or to the next one
  for (auto& call : calls) {
    const auto answer = call.answer.get(limit);
    ASSERT_TRUE(answer.ok()) << answer.error().message;
  }
  EXPECT_EQ(ledger->ran().size(), 100U);
  for (const auto& hub : {server, client.hub}) hub->stop();
}

TEST(Resends, do_not_happen_to_calls_that_may_run_once_alone) {
  const auto server = make_hub("server", Key{});
  const auto client = make_cuttable_hub("client");
  const auto holder = std::make_shared<Holder>();
  server->add_target(7, holder);
  auto call = begin_numbered(*client.hub, address_of(*server), {0, 1}, {});
  (void)holder->take();
  client.transport->cut();
  const auto lost = call.answer.get(limit);
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::actor_unavailable) << lost.error().message;
  for (const auto& hub : {server, client.hub}) hub->stop();
}

TEST(Resends, end_with_the_retries) {
  const auto server = make_hub("server", Key{});
  const auto client = make_cuttable_hub("client", {.reconnect_limit = 50ms});
  const auto holder = std::make_shared<Holder>();
  server->add_target(7, holder);
  auto call = begin_numbered(*client.hub, address_of(*server), {0, 1}, {.max_retries = 2});
  (void)holder->take();
  server->stop();
  const auto lost = call.answer.get(limit);
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::actor_unavailable) << lost.error().message;
  EXPECT_GE(client.transport->connects(), 2);
  client.hub->stop();
}

TEST(Resends, fail_with_the_cause_once_the_actor_is_known_to_be_gone) {
  const auto server = make_hub("server", Key{});
  const auto client = make_cuttable_hub("client");
  const auto holder = std::make_shared<Holder>();
  server->add_target(7, holder);
  auto call = begin_numbered(*client.hub, address_of(*server), {0, 1}, {.max_retries = -1});
  (void)holder->take();
  server->stop();
  EXPECT_FALSE(call.answer.wait(50ms)) << "it may come back";
  client.hub->mark_down(7, "it was eaten");
  const auto lost = call.answer.get(limit);
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::actor_died);
  EXPECT_EQ(lost.error().message, "it was eaten");
  client.hub->stop();
}

TEST(Resends, go_to_the_next_incarnation_before_later_calls) {
  const auto first = make_hub("first", Key{});
  const auto second = make_hub("second", Key{});
  const auto client = make_cuttable_hub("client");
  const auto stuck = std::make_shared<Ledger>(1);
  const auto ledger = std::make_shared<Ledger>(2);
  stuck->pause(true);
  first->add_target(7, stuck);
  second->add_target(7, ledger);
  ActorAddress address = address_of(*first);
  address.is_restartable = true;
  client.hub->mark_moved(address);
  std::vector<OpenCall> calls;
  const auto call = [&](int number, int retries) {
    calls.push_back(begin_numbered(*client.hub, address, {0, number}, {.max_retries = retries}));
  };
  for (int i = 0; i < 10; ++i) call(i, i % 2);  // each second one may be made again
  ASSERT_TRUE(stuck->wait_until_queued(10));
  client.hub->mark_restarting(7, 0, "it was eaten; it is started again");
  first->stop();
  for (int i = 10; i < 20; ++i) call(i, 0);
  address.endpoint = second->endpoint();
  address.incarnation = 1;
  client.hub->mark_moved(address);
  std::vector<int> expected;
  for (int i = 0; i < 20; ++i) {
    const auto answer = calls[static_cast<std::size_t>(i)].answer.get(limit);
    if (i < 10 && i % 2 == 0) {
      ASSERT_FALSE(answer.ok());
      EXPECT_EQ(answer.error().code, ErrorCode::actor_unavailable) << answer.error().message;
    } else {
      ASSERT_TRUE(answer.ok()) << answer.error().message;
      expected.push_back(i);
    }
  }
  std::vector<int> ran;
  for (const NumberedCall& one : ledger->ran()) ran.push_back(one.number);
  EXPECT_EQ(ran, expected);
  for (const auto& hub : {second, client.hub}) hub->stop();
}

TEST(Cancel, takes_a_queued_call_out_and_tells_the_one_that_runs) {
  const auto server = make_hub("server", Key{});
  const auto client = make_hub("client", Key{});
  server->add_target(8, std::make_shared<Mirror>());
  for (CallHub* caller : {client.get(), server.get()}) {  // over a link, and within the process
    const auto holder = std::make_shared<Holder>();
    server->add_target(6, holder);
    const auto ledger = std::make_shared<Ledger>(1);
    server->add_target(7, ledger);
    ledger->pause(true);
    auto address = address_of(*server);
    auto queued = begin_numbered(*caller, address, {0, 1}, {});
    auto later = begin_numbered(*caller, address, {0, 2}, {});
    ASSERT_TRUE(ledger->wait_until_queued(2));
    caller->cancel(queued.ticket);
    EXPECT_EQ(queued.answer.get(limit).error().code, ErrorCode::cancelled);
    EXPECT_EQ(ledger->queued(), 1U) << "it holds no memory any more";
    ledger->pause(false);
    EXPECT_TRUE(later.answer.get(limit).ok());
    EXPECT_EQ(ledger->ran().size(), 1U);

    address.id = 6;
    auto running = begin_numbered(*caller, address, {0, 3}, {});
    const IncomingCall held = holder->take();
    ASSERT_TRUE(held.answer.begin());
    EXPECT_FALSE(held.cancel.is_cancelled());
    caller->cancel(running.ticket);
    Deadline deadline(limit);
    while (!held.cancel.is_cancelled()) ASSERT_FALSE(deadline.is_over());
    ASSERT_TRUE(call(*caller, server->endpoint(), 8, {}).ok());  // the cancel has been dealt with
    EXPECT_FALSE(holder->was_dropped()) << "a call that runs is not looked for among the queued";
    EXPECT_FALSE(running.answer.ready());
    held.answer(encode(1));
    EXPECT_TRUE(running.answer.get(limit).ok()) << "the answer of a method that ran counts";
  }
  for (const auto& hub : {server, client}) hub->stop();
}

TEST(Cancel, of_a_call_that_waits_for_its_actor_gives_the_credit_back) {
  const auto client = make_hub("client", Key{}, {}, {.credits = 1, .credit_timeout = 50ms});
  const ActorAddress address{7, "nowhere", "ledger", "Ledger", 0, true};
  for (int i = 0; i < 3; ++i) {
    auto waiting = begin_numbered(*client, address, {0, i}, {.max_retries = 1});
    client->cancel(waiting.ticket);
    EXPECT_EQ(waiting.answer.get(limit).error().code, ErrorCode::cancelled);
  }
  client->stop();
}

TEST(Resends, of_calls_to_a_killed_target_of_this_process_go_to_the_one_in_its_place) {
  const auto hub = make_hub("hub", Key{});
  const auto killed = std::make_shared<Holder>();
  hub->add_target(7, killed);
  ActorAddress address = address_of(*hub);
  address.is_restartable = true;
  auto retried = begin_numbered(*hub, address, {0, 1}, {.max_retries = 1});
  const IncomingCall held = killed->take();
  ASSERT_TRUE(held.answer.begin()) << "it runs, and does not end";
  const auto next = std::make_shared<Ledger>(1);
  hub->add_target(7, next);
  auto of_next = begin_numbered(*hub, address, {0, 2}, {.max_retries = 1});
  hub->abandon_target(7, *killed);
  for (auto* call : {&retried, &of_next}) {
    const auto answer = call->answer.get(limit);
    ASSERT_TRUE(answer.ok()) << answer.error().message;
  }
  held.answer(encode(1));  // it is not heard any more
  EXPECT_EQ(next->ran().size(), 2U);
  EXPECT_TRUE(begin_numbered(*hub, address, {0, 3}, {}).answer.get(limit).ok()) << "it stays";
  hub->abandon_target(7, *next);
  auto plain = begin_numbered(*hub, address, {0, 4}, {});
  hub->mark_down(7, "it was eaten");
  EXPECT_EQ(plain.answer.get(limit).error().code, ErrorCode::actor_died);
  hub->stop();
}

TEST(Deadlines, fail_a_call_that_is_not_answered_and_travel_with_it) {
  const auto server = make_hub("server", Key{});
  const auto client = make_hub("client", Key{}, {}, {.credits = 1});
  const auto holder = std::make_shared<Holder>();
  server->add_target(7, holder);
  const auto now = std::chrono::steady_clock::now();
  auto late = begin_numbered(*client, address_of(*server), {0, 1}, {.deadline = now + 100ms});
  const IncomingCall held = holder->take();
  EXPECT_GT(held.deadline, now);
  EXPECT_LT(held.deadline, now + limit);
  const auto answer = late.answer.get(limit);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::timed_out);
  EXPECT_NE(answer.error().message.find("'ledger'"), std::string::npos) << answer.error().message;
  // The call was cancelled there, so its credit is back.
  server->remove_target(7);
  server->add_target(7, std::make_shared<Mirror>());
  const auto next = begin_numbered(*client, address_of(*server), {0, 2}, {}).answer.get(limit);
  EXPECT_TRUE(next.ok()) << next.error().message;
  auto passed = begin_numbered(*client, address_of(*server), {0, 3}, {.deadline = now});
  EXPECT_EQ(passed.answer.get(0s).error().code, ErrorCode::timed_out);
  for (const auto& hub : {server, client}) hub->stop();
}

}  // namespace
}  // namespace troupe
