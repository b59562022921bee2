#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/call/callback.hpp"
#include "tests/unit/runtime/call/cuttable_hubs.hpp"

namespace troupe {

inline constexpr auto limit = 60s;
inline constexpr int threads = 3;
inline constexpr std::size_t credits = 16;

/// What became of the calls of one thread, by their numbers.
struct Outcome {
  std::vector<CallTerms> terms;
  std::vector<Result<Bytes>> answers;
};

struct Calls {
  int count = 0;  ///< of each thread
  std::function<CallTerms(std::minstd_rand&)> terms_of;
  unsigned cancel_one_in = 0;
  std::size_t most_padding = 0;  ///< bytes
};

/// Makes calls from each of several threads and waits for all answers.
inline std::vector<Outcome> call_all(CallHub& hub, const ActorAddress& address, const Calls& made,
                                     unsigned seed) {
  std::vector<Outcome> outcomes(threads);
  std::vector<std::thread> callers;
  for (int thread = 0; thread < threads; ++thread) {
    callers.emplace_back([&, thread] {
      std::minstd_rand random(seed * 31 + static_cast<unsigned>(thread) + 1);
      Outcome& outcome = outcomes[static_cast<std::size_t>(thread)];
      std::vector<OpenCall> calls;
      for (int number = 0; number < made.count; ++number) {
        outcome.terms.push_back(made.terms_of(random));
        const NumberedCall call{thread, number,
                                std::string(random() % (made.most_padding + 1), '.')};
        calls.push_back(begin_numbered(hub, address, call, outcome.terms.back()));
        if (made.cancel_one_in == 0 || random() % made.cancel_one_in != 0) continue;
        hub.cancel(calls[random() % calls.size()].ticket);
      }
      for (auto& call : calls) outcome.answers.push_back(call.answer.get(limit));
    });
  }
  for (auto& caller : callers) caller.join();
  return outcomes;
}

/// No call runs twice, nor after a later one.
inline void expect_order_of_each_thread(const std::vector<NumberedCall>& ran, unsigned seed) {
  std::map<int, int> latest;
  for (const NumberedCall& call : ran) {
    const auto [at, is_first] = latest.emplace(call.thread, call.number);
    if (is_first) continue;
    EXPECT_LT(at->second, call.number) << "thread " << call.thread << ", seed " << seed;
    at->second = call.number;
  }
}

inline std::size_t times_run(const std::vector<NumberedCall>& ran, int thread, int number) {
  return static_cast<std::size_t>(std::ranges::count_if(ran, [&](const NumberedCall& call) {
    return call.thread == thread && call.number == number;
  }));
}

/// How many calls of the process have a credit.
inline double credits_in_use(CallHub& hub) {
  for (const auto& family : hub.observer()->snapshot().metrics) {
    if (family.name == "troupe_credits_in_use") return family.series.at(0).values.at(0);
  }
  return -1;
}

/// Calls wait for credit until all is back; in a callback one without credit fails at once.
inline void expect_all_credits_back(CallHub& hub, const ActorAddress& address, Ledger& ledger) {
  auto last =
      begin_numbered(hub, address, {threads, -1}, {.max_retries = -1});  // behind all others
  ASSERT_TRUE(last.answer.get(limit).ok());
  Deadline deadline(limit);
  while (credits_in_use(hub) > 0) ASSERT_FALSE(deadline.is_over()) << credits_in_use(hub);
  ledger.pause(true);
  std::vector<OpenCall> held;
  for (std::size_t i = 0; i < credits; ++i) {
    held.push_back(begin_numbered(hub, address, {threads, static_cast<int>(i)}, {}));
    ASSERT_FALSE(held.back().answer.ready()) << "credit " << i << " has not come back";
  }
  EXPECT_EQ(credits_in_use(hub), credits) << "one has come back twice";
  run_callback([&] {
    auto beyond = begin_numbered(hub, address, {threads, static_cast<int>(credits)}, {});
    ASSERT_TRUE(beyond.answer.ready()) << "there are more credits than before";
    EXPECT_EQ(beyond.answer.get(0s).error().code, ErrorCode::resource_exhausted);
  });
  ledger.pause(false);
  for (std::size_t i = 0; i < credits; ++i) EXPECT_TRUE(held[i].answer.get(limit).ok()) << i;
}

/// Does `what` while it lives: each time after so many more runs as chance says. So it disturbs as
/// much on a busy machine.
class Disturber {
 public:
  Disturber(unsigned seed, unsigned most_runs, std::function<std::size_t()> runs,
            std::function<void()> what)
      : thread_([this, seed, most_runs, runs = std::move(runs), what = std::move(what)] {
          std::minstd_rand random(seed);
          std::size_t due = 0;
          while (!is_over_) {
            std::this_thread::sleep_for(100us);
            if (runs() < due) continue;
            what();
            due = runs() + (random() % 5 == 0 ? 0 : random() % most_runs);
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

}  // namespace troupe
