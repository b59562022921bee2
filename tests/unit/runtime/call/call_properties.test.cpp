// Calls under cuts, cancels, deadlines and restarts by chance. Each seed is a run of its own; a
// failure names it.
#include <algorithm>
#include <atomic>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "runtime/call/callback.hpp"
#include "tests/unit/runtime/call/cuttable_hubs.hpp"

namespace troupe {
namespace {

constexpr auto limit = 60s;
constexpr int threads = 3;
constexpr std::size_t credits = 16;

/// What became of the calls of one thread, by their numbers.
struct Outcome {
  std::vector<Result<Bytes>> answers;
};

/// Makes `count` calls from each of several threads and waits for all answers.
std::vector<Outcome> call_all(CallHub& hub, const ActorAddress& address, int count,
                              const std::function<CallTerms(std::minstd_rand&)>& terms_of,
                              unsigned cancel_one_in, unsigned seed) {
  std::vector<Outcome> outcomes(threads);
  std::vector<std::thread> callers;
  for (int thread = 0; thread < threads; ++thread) {
    callers.emplace_back([&, thread] {
      std::minstd_rand random(seed * 31 + static_cast<unsigned>(thread) + 1);
      std::vector<OpenCall> calls;
      for (int number = 0; number < count; ++number) {
        calls.push_back(begin_numbered(hub, address, {thread, number}, terms_of(random)));
        if (cancel_one_in == 0 || random() % cancel_one_in != 0) continue;
        hub.cancel(calls[random() % calls.size()].ticket);
      }
      for (auto& call : calls) {
        outcomes[static_cast<std::size_t>(thread)].answers.push_back(call.answer.get(limit));
      }
    });
  }
  for (auto& caller : callers) caller.join();
  return outcomes;
}

void expect_order_of_each_thread(const std::vector<NumberedCall>& ran) {
  std::map<int, int> latest;
  for (const NumberedCall& call : ran) {
    const auto [at, is_first] = latest.emplace(call.thread, call.number);
    if (is_first) continue;
    EXPECT_LT(at->second, call.number) << "thread " << call.thread;
    at->second = call.number;
  }
}

std::size_t times_run(const std::vector<NumberedCall>& ran, int thread, int number) {
  return static_cast<std::size_t>(std::ranges::count_if(ran, [&](const NumberedCall& call) {
    return call.thread == thread && call.number == number;
  }));
}

/// Calls wait for credit until all is back; in a callback one without credit fails at once.
void expect_all_credits_back(CallHub& hub, const ActorAddress& address, Ledger& ledger) {
  auto last =
      begin_numbered(hub, address, {threads, -1}, {.max_retries = -1});  // behind all others
  ASSERT_TRUE(last.answer.get(limit).ok());
  ledger.pause(true);
  std::vector<OpenCall> held;
  for (std::size_t i = 0; i < credits; ++i) {
    held.push_back(begin_numbered(hub, address, {threads, static_cast<int>(i)}, {}));
    ASSERT_FALSE(held.back().answer.ready()) << "credit " << i << " has not come back";
  }
  run_callback([&] {
    auto beyond = begin_numbered(hub, address, {threads, static_cast<int>(credits)}, {});
    ASSERT_TRUE(beyond.answer.ready()) << "there are more credits than before";
    EXPECT_EQ(beyond.answer.get(0s).error().code, ErrorCode::resource_exhausted);
  });
  ledger.pause(false);
  for (std::size_t i = 0; i < credits; ++i) EXPECT_TRUE(held[i].answer.get(limit).ok()) << i;
}

/// Does `what` at random times while it lives.
class Disturber {
 public:
  Disturber(unsigned seed, int most_us, std::function<void()> what)
      : thread_([this, seed, most_us, what = std::move(what)] {
          std::minstd_rand random(seed);
          while (!is_over_) {
            std::this_thread::sleep_for(
                std::chrono::microseconds(std::uniform_int_distribution(100, most_us)(random)));
            what();
          }
        }) {}
  ~Disturber() {
    is_over_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

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
    const Disturber cuts(seed, 80000, [&] { client.transport->cut(); });
    outcomes = call_all(
        *client.hub, address, 300, [](std::minstd_rand&) { return CallTerms{.max_retries = -1}; },
        0, seed);
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
  expect_order_of_each_thread(ran);
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
    const Disturber cuts(seed, 80000, [&] { client.transport->cut(); });
    outcomes = call_all(
        *client.hub, address, 200,
        [](std::minstd_rand& random) {
          CallTerms terms{.max_retries = static_cast<int>(random() % 3) - 1};
          if (random() % 4 == 0) {
            terms.deadline =
                std::chrono::steady_clock::now() + std::chrono::milliseconds(random() % 20);
          }
          return terms;
        },
        4, seed);
  }
  expect_all_credits_back(*client.hub, address, *ledger);
  const auto ran = ledger->ran();
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
    const Disturber kills(seed, 60000, [&] {
      const std::lock_guard lock(mutex);
      if (incarnation % 2 == 0) client.transport->cut();
      server->stop();
      client.hub->mark_restarting(7, incarnation, "it was eaten; it is started again");
      start(++incarnation);
    });
    outcomes = call_all(
        *client.hub, address, 200, [](std::minstd_rand&) { return CallTerms{.max_retries = -1}; },
        0, seed);
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
    // Their order is not kept over a restart: a later call may go to the next incarnation first.
    for (const NumberedCall& call : ran) {
      EXPECT_EQ(times_run(ran, call.thread, call.number), 1U) << "seed " << seed;
    }
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
