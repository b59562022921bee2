// The order of calls that may be made again beside such that may not, and their credits, while
// links are cut and their actor ends in all ways and is started again, by chance.
#include <set>

#include <gtest/gtest.h>

#include "tests/unit/runtime/call/property_calls.hpp"

namespace troupe {
namespace {

constexpr std::size_t credit_bytes = 4000, most_padding = 900;

/// An actor of many incarnations, in other processes and in the client's own, which supervision
/// tells the client of.
class Incarnations {
 public:
  Incarnations(unsigned seed, CuttableHub client) : seed_(seed), client_(std::move(client)) {
    start(new_server());
    address_ = {7, servers_.front()->endpoint(), "ledger", "Ledger", 0, true};
  }
  ~Incarnations() {
    for (const auto& server : servers_) server->stop();
  }

  /// What a handle has, which knows of the first one alone.
  const ActorAddress& address() const { return address_; }
  const std::vector<std::shared_ptr<Ledger>>& ledgers() const { return ledgers_; }

  std::size_t runs() const {
    const std::lock_guard lock(mutex_);
    std::size_t sum = 0;
    for (const auto& ledger : ledgers_) sum += ledger->runs();
    return sum;
  }

  /// Ends an incarnation and starts the next one.
  void restart(std::minstd_rand& random) {
    const auto hub = ledger_hub_;
    const auto ledger = ledgers_.back();
    const bool is_local = hub == client_.hub;
    const bool stays = random() % 3 == 0;  // its process does
    ledger->kill(is_local);
    if (is_local) {
      hub->abandon_target(7, *ledger);
      tell_end();
      start(new_server());
      return ledger->leave();  // what has not been answered yet
    }
    if (stays) hub->remove_target(7);
    const auto end = [&] { stays ? ledger->leave() : hub->stop(); };
    switch (random() % 4) {
      case 0:  // the link first
        end();
        tell_end();
        return start(next_hub(random, hub, stays));
      case 1:  // supervision first
        tell_end();
        start(next_hub(random, hub, stays));
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
        return end();
      case 2:  // as it comes
        tell_end();
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
        end();
        return start(next_hub(random, hub, stays));
      default:  // its link never ends
        tell_end();
        return start(next_hub(random, hub, false));
    }
  }

 private:
  std::shared_ptr<CallHub> new_server() {
    servers_.push_back(make_hub(fmt::format("server-{}", servers_.size()), Key{}));
    return servers_.back();
  }
  std::shared_ptr<CallHub> next_hub(std::minstd_rand& random, const std::shared_ptr<CallHub>& last,
                                    bool may_be_last) {
    if (may_be_last && random() % 2 == 0) return last;
    return random() % 4 == 0 ? client_.hub : new_server();
  }
  void tell_end() {
    client_.hub->mark_restarting(7, static_cast<std::uint32_t>(ledgers_.size() - 1),
                                 "it was eaten; it is started again");
  }
  void start(const std::shared_ptr<CallHub>& hub) {
    ActorAddress there{7, hub->endpoint(), "ledger", "Ledger", 0, true};
    there.incarnation = static_cast<std::uint32_t>(ledgers_.size());
    {
      const std::lock_guard lock(mutex_);
      ledgers_.push_back(
          std::make_shared<Ledger>(seed_ + there.incarnation, 100, there.incarnation));
    }
    ledger_hub_ = hub;
    hub->add_target(7, ledgers_.back());
    client_.hub->mark_moved(there);
  }

  const unsigned seed_;
  const CuttableHub client_;
  ActorAddress address_;
  std::vector<std::shared_ptr<CallHub>> servers_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Ledger>> ledgers_;  ///< changed under the mutex, by restart() alone
  std::shared_ptr<CallHub> ledger_hub_;           ///< of the latest
};

/// The calls in the order in which they began first.
std::vector<NumberedCall> first_runs(const std::vector<std::shared_ptr<Ledger>>& ledgers) {
  std::vector<NumberedCall> runs;
  std::set<std::pair<int, int>> known;
  for (const auto& ledger : ledgers) {
    for (const NumberedCall& call : ledger->ran()) {
      if (known.emplace(call.thread, call.number).second) runs.push_back(call);
    }
  }
  return runs;
}

CallTerms any_terms(std::minstd_rand& random) {
  return {.max_retries = random() % 2 == 0 ? 0 : -1};
}
CallTerms any_terms_and_deadline(std::minstd_rand& random) {
  CallTerms terms{.max_retries = static_cast<int>(random() % 3) - 1};
  if (random() % 4 == 0) {
    terms.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(random() % 20);
  }
  return terms;
}

CallHub::Options options() {
  return {.credits = credits,
          .credit_bytes = credit_bytes,
          .credit_timeout = limit,
          .cause_grace = 20ms,
          .last_answer_timeout = 200ms,
          .handover_limit = 30ms};
}

class OrderProperties : public ::testing::TestWithParam<unsigned> {
 protected:
  /// What holds for every call, whatever ends and breaks.
  void expect_runs(const std::vector<Outcome>& outcomes,
                   const std::vector<std::shared_ptr<Ledger>>& ledgers, bool all_may_fail) const {
    std::vector<NumberedCall> ran;
    for (const auto& ledger : ledgers) {
      const auto of_this = ledger->ran();
      expect_order_of_each_thread(of_this, GetParam());
      ran.insert(ran.end(), of_this.begin(), of_this.end());
      EXPECT_LE(ledger->longest_queue(), credits) << "seed " << GetParam();
      EXPECT_LE(ledger->most_queued_bytes(), credit_bytes) << "seed " << GetParam();
    }
    expect_order_of_each_thread(first_runs(ledgers), GetParam());
    int failed = 0;
    for (int thread = 0; thread < threads; ++thread) {
      const auto& [terms, answers] = outcomes[static_cast<std::size_t>(thread)];
      for (std::size_t i = 0; i < answers.size(); ++i) {
        const auto times = times_run(ran, thread, static_cast<int>(i));
        const auto call = fmt::format("call {} of thread {}, seed {}", i, thread, GetParam());
        const bool is_retried = terms[i].max_retries != 0;
        if (!is_retried || ledgers.size() == 1) {
          EXPECT_LE(times, 1U) << call;
        }
        if (answers[i].ok()) {
          EXPECT_GE(times, 1U) << call;
          continue;
        }
        ++failed;
        const ErrorCode code = answers[i].error().code;
        EXPECT_TRUE(all_may_fail || !is_retried) << call << ": " << answers[i].error().message;
        EXPECT_TRUE(
            code == ErrorCode::actor_unavailable ||
            (all_may_fail && (code == ErrorCode::cancelled || code == ErrorCode::timed_out)))
            << call << ": " << answers[i].error().message;
      }
    }
    EXPECT_GT(failed, 0) << "nothing was broken";
  }
};

TEST_P(OrderProperties, calls_of_both_kinds_begin_in_order_while_links_are_cut) {
  const auto server = make_hub("server", Key{});
  const auto client = make_cuttable_hub("client", options());
  const auto ledger = std::make_shared<Ledger>(GetParam(), 200);
  server->add_target(7, ledger);
  const ActorAddress address{7, server->endpoint(), "ledger", "Ledger"};
  std::vector<Outcome> outcomes;
  {
    const Disturber cuts(
        GetParam(), 60, [&] { return ledger->runs(); }, [&] { client.transport->cut(); });
    outcomes = call_all(*client.hub, address, {400, any_terms, 0, most_padding}, GetParam());
  }
  expect_runs(outcomes, {ledger}, false);
  expect_all_credits_back(*client.hub, address, *ledger);
  for (const auto& hub : {server, client.hub}) hub->stop();
}

TEST_P(OrderProperties, calls_of_both_kinds_begin_in_order_over_restarts) {
  const auto client = make_cuttable_hub("client", options());
  Incarnations actor(GetParam(), client);
  std::vector<Outcome> outcomes;
  {
    std::minstd_rand random(GetParam() + 1);
    const Disturber cuts(
        GetParam(), 150, [&] { return actor.runs(); }, [&] { client.transport->cut(); });
    const Disturber kills(
        GetParam(), 80, [&] { return actor.runs(); }, [&] { actor.restart(random); });
    outcomes =
        call_all(*client.hub, actor.address(), {400, any_terms, 0, most_padding}, GetParam());
  }
  EXPECT_GT(actor.ledgers().size(), 2U) << "it was hardly started again";
  expect_runs(outcomes, actor.ledgers(), false);
  expect_all_credits_back(*client.hub, actor.address(), *actor.ledgers().back());
  client.hub->stop();
}

TEST_P(OrderProperties, credits_come_back_once_whatever_happens_to_calls) {
  const auto client = make_cuttable_hub("client", options());
  Incarnations actor(GetParam(), client);
  std::vector<Outcome> outcomes;
  {
    std::minstd_rand random(GetParam() + 1);
    const Disturber cuts(
        GetParam(), 150, [&] { return actor.runs(); }, [&] { client.transport->cut(); });
    const Disturber kills(
        GetParam(), 80, [&] { return actor.runs(); }, [&] { actor.restart(random); });
    outcomes = call_all(*client.hub, actor.address(),
                        {400, any_terms_and_deadline, 4, most_padding}, GetParam());
  }
  expect_runs(outcomes, actor.ledgers(), true);
  expect_all_credits_back(*client.hub, actor.address(), *actor.ledgers().back());
  client.hub->mark_down(7, "it was eaten");
  auto late = begin_numbered(*client.hub, actor.address(), {threads, 0}, {});
  EXPECT_EQ(late.answer.get(limit).error().code, ErrorCode::actor_died);
  EXPECT_EQ(credits_in_use(*client.hub), 0);
  client.hub->stop();
}

INSTANTIATE_TEST_SUITE_P(Seeds, OrderProperties, ::testing::Range(1U, 9U));

}  // namespace
}  // namespace troupe
