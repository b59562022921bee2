// Calls under cuts, cancels, deadlines and restarts by chance. Each seed is a run of its own; a
// failure names it.
#include <map>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "tests/unit/runtime/call/property_calls.hpp"

namespace troupe {
namespace {

class CallProperties : public ::testing::TestWithParam<unsigned> {};

TEST_P(CallProperties, retried_calls_run_once_and_in_order_while_links_are_cut) {
  const unsigned seed = GetParam();
  const CallHub::Options options{.credits = credits, .credit_timeout = limit};
  const auto server = make_hub("server", Key{});
  const auto client = make_cuttable_hub("client", options);
  const auto ledger = std::make_shared<Ledger>(seed, 200);
  server->add_target(7, ledger);
  const ActorAddress address{7, server->endpoint(), "ledger", "Ledger"};
  std::vector<Outcome> outcomes;
  {
    const Disturber cuts(
        seed, 100, [&] { return ledger->runs(); }, [&] { client.transport->cut(); });
    outcomes =
        call_all(*client.hub, address,
                 {300, [](std::minstd_rand&) { return CallTerms{.max_retries = -1}; }}, seed);
  }
  const auto ran = ledger->ran();
  for (int thread = 0; thread < threads; ++thread) {
    const auto& answers = outcomes[static_cast<std::size_t>(thread)].answers;
    for (int number = 0; number < static_cast<int>(answers.size()); ++number) {
      const auto& answer = answers[static_cast<std::size_t>(number)];
      ASSERT_TRUE(answer.ok()) << "seed " << seed << ": " << answer.error().message;
      EXPECT_EQ(*answer, encode(NumberedCall{thread, number})) << "seed " << seed;
    }
  }
  EXPECT_EQ(ran.size(), 300U * threads) << "seed " << seed;
  expect_order_of_each_thread(ran, seed);
  EXPECT_LE(ledger->longest(), credits);
  EXPECT_GT(client.transport->connects(), 1) << "no link was cut";
  expect_all_credits_back(*client.hub, address, *ledger);
  for (const auto& hub : {server, client.hub}) hub->stop();
}

TEST_P(CallProperties, all_calls_are_answered_and_none_runs_twice_among_cuts_and_cancels) {
  const unsigned seed = GetParam();
  const CallHub::Options options{.credits = credits, .credit_timeout = limit};
  const auto server = make_hub("server", Key{});
  const auto client = make_cuttable_hub("client", options);
  const auto ledger = std::make_shared<Ledger>(seed, 300);
  server->add_target(7, ledger);
  const ActorAddress address{7, server->endpoint(), "ledger", "Ledger"};
  std::vector<Outcome> outcomes;
  {
    const Disturber cuts(
        seed, 100, [&] { return ledger->runs(); }, [&] { client.transport->cut(); });
    outcomes = call_all(*client.hub, address,
                        {200,
                         [](std::minstd_rand& random) {
                           CallTerms terms{.max_retries = static_cast<int>(random() % 3) - 1};
                           if (random() % 4 == 0) {
                             terms.deadline = std::chrono::steady_clock::now() +
                                              std::chrono::milliseconds(random() % 20);
                           }
                           return terms;
                         },
                         4},
                        seed);
  }
  const auto ran = ledger->ran();
  expect_order_of_each_thread(ran, seed);
  EXPECT_LE(ledger->longest_queue(), credits) << "seed " << seed;
  expect_all_credits_back(*client.hub, address, *ledger);
  std::map<ErrorCode, int> codes;
  for (int thread = 0; thread < threads; ++thread) {
    const auto& answers = outcomes[static_cast<std::size_t>(thread)].answers;
    for (int number = 0; number < static_cast<int>(answers.size()); ++number) {
      const auto& answer = answers[static_cast<std::size_t>(number)];
      const auto times = times_run(ran, thread, number);
      EXPECT_LE(times, 1U) << "seed " << seed;
      if (answer.ok()) {
        EXPECT_EQ(times, 1U) << "seed " << seed;
      } else {
        ++codes[answer.error().code];
      }
    }
  }
  for (const auto& [code, count] : codes) {
    EXPECT_TRUE(code == ErrorCode::cancelled || code == ErrorCode::timed_out ||
                code == ErrorCode::actor_unavailable)
        << to_string(code) << " " << count << " times, seed " << seed;
  }
  for (const auto& hub : {server, client.hub}) hub->stop();
}

TEST_P(CallProperties, retried_calls_survive_restarts_of_their_actor) {
  const unsigned seed = GetParam();
  const CallHub::Options options{.credits = credits, .credit_timeout = limit};
  const auto client = make_cuttable_hub("client", options);
  std::mutex mutex;
  std::shared_ptr<CallHub> server;
  std::vector<std::shared_ptr<Ledger>> ledgers;
  ActorAddress address{7, "", "ledger", "Ledger", 0, true};
  const auto start = [&](std::uint32_t incarnation) {
    server = make_hub(fmt::format("server-{}", incarnation), Key{});
    ledgers.push_back(std::make_shared<Ledger>(seed + incarnation, 100));
    server->add_target(7, ledgers.back());
    ActorAddress there = address;
    there.endpoint = server->endpoint();
    there.incarnation = incarnation;
    client.hub->mark_moved(there);
    return there;
  };
  address = start(0);
  std::vector<Outcome> outcomes;
  {
    std::uint32_t incarnation = 0;
    const Disturber kills(
        seed, 100,
        [&] {
          const std::lock_guard lock(mutex);
          return std::accumulate(
              ledgers.begin(), ledgers.end(), std::size_t{0},
              [](std::size_t sum, const auto& one) { return sum + one->runs(); });
        },
        [&] {
          const std::lock_guard lock(mutex);
          if (incarnation % 2 == 0) client.transport->cut();
          server->stop();
          client.hub->mark_restarting(7, incarnation, "it was eaten; it is started again");
          start(++incarnation);
        });
    outcomes =
        call_all(*client.hub, address,
                 {200, [](std::minstd_rand&) { return CallTerms{.max_retries = -1}; }}, seed);
  }
  for (int thread = 0; thread < threads; ++thread) {
    const auto& answers = outcomes[static_cast<std::size_t>(thread)].answers;
    for (int number = 0; number < static_cast<int>(answers.size()); ++number) {
      const auto& answer = answers[static_cast<std::size_t>(number)];
      ASSERT_TRUE(answer.ok()) << "seed " << seed << ": " << answer.error().message;
    }
  }
  std::set<std::pair<int, int>> known;
  for (const auto& ledger : ledgers) {
    const auto ran = ledger->ran();
    expect_order_of_each_thread(ran, seed);
    for (const NumberedCall& call : ran) known.emplace(call.thread, call.number);
    EXPECT_LE(ledger->longest(), credits);
  }
  EXPECT_EQ(known.size(), 200U * threads);
  EXPECT_GT(ledgers.size(), 1U) << "it was never started again";
  expect_all_credits_back(*client.hub, address, *ledgers.back());
  for (const auto& hub : {server, client.hub}) hub->stop();
}

INSTANTIATE_TEST_SUITE_P(Seeds, CallProperties, ::testing::Range(1U, 5U));

}  // namespace
}  // namespace troupe
