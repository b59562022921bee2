#include <gtest/gtest.h>
#include <malloc.h>

#include "actors/executor/request_tracker.hpp"
#include "tests/support/time_scale.hpp"

// The memory of waiting requests.

namespace troupe {
namespace {

constexpr std::size_t requests = 600;
constexpr std::size_t prompt_tokens = 1901;

PreparedRequest request_of(std::uint64_t id, std::int32_t n) {
  PreparedRequest request;
  request.id = id;
  request.prompt.assign(prompt_tokens, 7);
  request.sampling.max_tokens = 16;
  request.sampling.stop_token_ids.assign(100, 3);
  request.form.n = request.form.best_of = n;
  return request;
}

/// Bytes that the executor holds for requests of `n` choices, some of which run.
std::size_t bytes_held(std::int32_t n) {
  auto scheduler = Scheduler::make({.max_num_seqs = 64, .kv_cache_blocks = 10'000});
  EXPECT_TRUE(scheduler.ok());
  RequestTracker answers(nullptr);
  const std::size_t before = mallinfo2().uordblks;
  for (std::uint64_t id = 0; id < requests; ++id) {
    EXPECT_TRUE(scheduler->add(answers.begin(0, request_of(id, n), {})).ok());
  }
  for (int step = 0; step < 3; ++step) {
    const auto plan = scheduler->plan();
    EXPECT_TRUE(plan.has_value());
    StepResult result{plan->step, plan->epoch, {}, 100};
    for (const SequenceStep& share : plan->steps) {
      if (share.sample) result.results.push_back({share.id, {1}, {}, 0, {}, false});
    }
    const auto updates = scheduler->apply(std::move(result));
    EXPECT_TRUE(updates.ok());
  }
  EXPECT_EQ(scheduler->live(), requests * static_cast<std::size_t>(n));
  return mallinfo2().uordblks - before;
}

TEST(RequestMemory, of_128_choices_is_that_of_one) {
  if (test::time_scale > 1) GTEST_SKIP() << "sanitizers bring an allocator of their own";
  const std::size_t one = bytes_held(1);
  const std::size_t many = bytes_held(128);
  EXPECT_GT(one, requests * prompt_tokens * sizeof(std::int32_t));
  EXPECT_LT(one, 3 * requests * prompt_tokens * sizeof(std::int32_t))
      << "the prompt is held in more places than the scheduler and the answer";
  EXPECT_LT(many, one + one / 10);
}

}  // namespace
}  // namespace troupe
