#include <gtest/gtest.h>

#include "tests/process/runtime/actor/test_actors.hpp"
#include "tests/support/blocked_callback.hpp"

namespace troupe::test {

TEST(Callbacks, of_calls_that_block_delay_no_call_of_another_actor) {
  const auto cluster = start_cluster();
  const auto counter = must(cluster->spawn<Counter>({}, 1).get(limit));
  const auto other = must(cluster->spawn<Counter>({}, 10).get(limit));
  BlockedCallback blocker;
  counter.call<&Counter::add>(1).then([&](const Result<int>&) { blocker.block(); });
  ASSERT_TRUE(blocker.has_begun());
  EXPECT_EQ(must(other.call<&Counter::add>(1).get(2s)), 11);
  EXPECT_EQ(must(counter.call<&Counter::add>(1).get(2s)), 3);
  blocker.go_on();
  EXPECT_TRUE(blocker.ends());
}

TEST(Callbacks, of_spawns_that_block_delay_no_call_no_spawn_and_no_death) {
  const auto cluster = start_cluster();
  const auto counter = must(cluster->spawn<Counter>({}, 1).get(limit));
  BlockedCallback blocker;
  cluster->spawn<Counter>({}, 1).then(
      [&](const Result<ActorHandle<Counter>>&) { blocker.block(); });
  ASSERT_TRUE(blocker.has_begun());
  Promise<ActorDown> down;
  const auto token = cluster->watch(counter, [down](const ActorDown& end) { down.complete(end); });
  EXPECT_EQ(must(counter.call<&Counter::add>(1).get(2s)), 2);
  EXPECT_TRUE(cluster->spawn<Counter>({}, 1).get(2s).ok());
  EXPECT_TRUE(cluster->kill(counter).ok());
  EXPECT_TRUE(down.future().wait(2s));
  blocker.go_on();
  EXPECT_TRUE(blocker.ends());
}

TEST(Callbacks, of_an_actors_spawns_that_block_do_not_silence_its_process) {
  const auto cluster = start_cluster();
  const auto insider = must(cluster->spawn<Insider>({}).get(limit));
  constexpr int longer_than_the_silence_limit_ms = 2500;
  const auto spawned =
      insider.call<&Insider::spawn_with_slow_callback>(longer_than_the_silence_limit_ms).get(limit);
  EXPECT_TRUE(spawned.ok()) << spawned.error().message;
}

TEST(Callbacks, run_in_the_order_of_the_answers) {
  const auto cluster = start_cluster();
  const auto counter = must(cluster->spawn<Counter>({}, 0).get(limit));
  std::vector<int> sums;
  Promise<void> done;
  for (int i = 1; i <= 500; ++i) {
    counter.call<&Counter::add>(1).then([&, i](const Result<int>& sum) {
      sums.push_back(sum.ok() ? *sum : -1);
      if (i == 500) done.complete({});
    });
  }
  ASSERT_TRUE(done.future().wait(limit));
  for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i], static_cast<int>(i) + 1);
}

TEST(Callbacks, that_are_due_hold_the_credits_of_their_actor_alone) {
  ClusterOptions options;
  options.calls.credits = 2;
  options.calls.credit_timeout = 200ms;
  const auto cluster = start_cluster(std::move(options));
  const auto counter = must(cluster->spawn<Counter>({}, 1).get(limit));
  const auto other = must(cluster->spawn<Counter>({}, 10).get(limit));
  BlockedCallback blocker;
  counter.call<&Counter::add>(1).then([&](const Result<int>&) { blocker.block(); });
  ASSERT_TRUE(blocker.has_begun());
  // One more than the credits may slip in while an answer comes.
  for (int i = 0; i < 3; ++i) counter.call<&Counter::add>(1).then([](const Result<int>&) {});
  const auto refused = counter.call<&Counter::add>(1).get(2s);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted) << refused.error().message;
  EXPECT_EQ(must(other.call<&Counter::add>(1).get(2s)), 11);
  blocker.go_on();
  EXPECT_TRUE(blocker.ends());
  EXPECT_TRUE(counter.call<&Counter::add>(1).get(limit).ok());
}

TEST(Callbacks, may_wait_for_the_answer_of_another_call) {
  const auto cluster = start_cluster();
  const auto counter = must(cluster->spawn<Counter>({}, 1).get(limit));
  Promise<int> sum;
  counter.call<&Counter::add>(1).then(
      [&](const Result<int>&) { sum.complete(counter.call<&Counter::add>(1).get(2s)); });
  EXPECT_EQ(must(sum.future().get(limit)), 3);
}

}  // namespace troupe::test
