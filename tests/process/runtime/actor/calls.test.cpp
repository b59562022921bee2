#include <gtest/gtest.h>

#include "runtime/base/deadline.hpp"
#include "tests/process/runtime/actor/test_actors.hpp"

namespace troupe::test {

TEST(Calls, answer_with_values_errors_nothing_and_the_text_of_exceptions) {
  const auto cluster = start_cluster();
  const auto counter = must(cluster->spawn<Counter>({.name = "c"}, 10).get(limit));
  EXPECT_EQ(must(counter.call<&Counter::add>(5).get(limit)), 15);
  EXPECT_EQ(must(counter.call<&Counter::divide>(3).get(limit)), 5);
  const auto divided = counter.call<&Counter::divide>(0).get(limit);
  ASSERT_FALSE(divided.ok());
  EXPECT_EQ(divided.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(divided.error().message, "division by zero");
  EXPECT_TRUE(counter.call<&Counter::reset>().get(limit).ok());
  EXPECT_EQ(must(counter.call<&Counter::add>(1).get(limit)), 1);
  const auto thrown = counter.call<&Counter::throw_something>().get(limit);
  ASSERT_FALSE(thrown.ok());
  EXPECT_EQ(thrown.error().code, ErrorCode::exception);
  EXPECT_NE(thrown.error().message.find("std::runtime_error: on purpose"), std::string::npos)
      << thrown.error().message;
  const auto number = counter.call<&Counter::throw_a_number>().get(limit);
  ASSERT_FALSE(number.ok());
  EXPECT_EQ(number.error().code, ErrorCode::exception) << number.error().message;
  EXPECT_EQ(must(counter.call<&Counter::add>(1).get(limit)), 2)
      << "an exception must not end the actor";
}

TEST(Calls, through_an_interface_reach_the_actor_that_implements_it) {
  const auto cluster = start_cluster();
  const auto doubler = must(cluster->spawn_local<Doubler>({.name = "doubler"}).get(limit));
  const auto insider = must(cluster->spawn<Insider>({}).get(limit));
  EXPECT_EQ(must(insider.call<&Insider::add_through_interface>(doubler, 5).get(limit)), 10);
  EXPECT_EQ(must(doubler.call<&Doubler::value>().get(limit)), 10);
}

TEST(Calls, of_one_caller_arrive_in_order) {
  const auto cluster = start_cluster();
  const auto recorder = must(cluster->spawn<Recorder>({}).get(limit));
  constexpr int count = 5000;  // more than the credits
  for (int i = 0; i < count; ++i) recorder.call<&Recorder::record>(i);
  const auto numbers = must(recorder.call<&Recorder::numbers>().get(limit));
  ASSERT_EQ(numbers.size(), static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) ASSERT_EQ(numbers[i], i) << "place " << i;
}

TEST(Calls, time_out_and_can_be_waited_for_again) {
  const auto cluster = start_cluster();
  const auto recorder = must(cluster->spawn<Recorder>({}).get(limit));
  auto slow = recorder.call<&Recorder::block_for_ms>(300);
  const auto early = slow.get(10ms);
  ASSERT_FALSE(early.ok());
  EXPECT_EQ(early.error().code, ErrorCode::timed_out) << early.error().message;
  EXPECT_TRUE(slow.get(limit).ok());
  EXPECT_EQ(slow.get(limit).error().code, ErrorCode::invalid_argument) << "an answer is taken once";
}

TEST(Calls, beyond_the_credits_wait_and_then_fail_with_resource_exhausted) {
  ClusterOptions options;
  options.calls.credits = 4;
  options.calls.credit_timeout = 100ms;
  const auto cluster = start_cluster(std::move(options));
  const auto recorder = must(cluster->spawn<Recorder>({}).get(limit));
  auto slow = recorder.call<&Recorder::block_for_ms>(1500);
  for (int i = 0; i < 3; ++i) recorder.call<&Recorder::record>(i);
  auto refused = recorder.call<&Recorder::record>(3).get(limit);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted) << refused.error().message;
  EXPECT_TRUE(slow.get(limit).ok());
  EXPECT_TRUE(recorder.call<&Recorder::record>(4).get(limit).ok()) << "answers give credits back";
  EXPECT_EQ(must(recorder.call<&Recorder::numbers>().get(limit)), (std::vector<int>{0, 1, 2, 4}));
}

TEST(Calls, of_a_callback_fail_at_once_without_credit) {
  ClusterOptions options;
  options.calls.credits = 1;
  const auto cluster = start_cluster(std::move(options));
  const auto recorder = must(cluster->spawn<Recorder>({}).get(limit));
  auto slow = recorder.call<&Recorder::block_for_ms>(1000);
  Promise<ErrorCode> refused;
  cluster->spawn<Counter>({}, 1).then([&](const Result<ActorHandle<Counter>>&) {
    auto beyond = recorder.call<&Recorder::record>(1);
    const auto start = std::chrono::steady_clock::now();
    const auto answer = beyond.get(0s);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 500ms);
    refused.complete(answer.ok() ? ErrorCode::internal : answer.error().code);
  });
  EXPECT_EQ(must(refused.future().get(limit)), ErrorCode::resource_exhausted)
      << "the callback of a spawn must not wait for an answer";
  EXPECT_TRUE(slow.get(limit).ok());
}

TEST(Calls, are_answered_although_the_actor_leaves_with_the_answer) {
  const auto cluster = start_cluster();
  for (int i = 0; i < 4; ++i) {
    const auto leaver = must(cluster->spawn<Leaver>({}, "").get(limit));
    const auto answer = leaver.call<&Leaver::answer_and_leave>(std::uint64_t{24} << 20).get(limit);
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ(answer->size(), std::size_t{24} << 20);
  }
}

TEST(Calls, carry_megabytes_both_ways) {
  const auto cluster = start_cluster();
  const auto recorder = must(cluster->spawn<Recorder>({}).get(limit));
  std::string text(std::size_t{20} << 20, 'x');
  text[12345678] = 'y';
  std::vector<Future<std::string>> echoes;
  for (int i = 0; i < 3; ++i) echoes.push_back(recorder.call<&Recorder::echo>(text));
  for (auto& echo : echoes) EXPECT_TRUE(must(echo.get(limit)) == text);
}

TEST(Calls, run_callbacks_of_futures_once) {
  const auto cluster = start_cluster();
  const auto counter = must(cluster->spawn<Counter>({}, 1).get(limit));
  Promise<int> promise;
  counter.call<&Counter::add>(1).then(
      [promise](Result<int> sum) { promise.complete(std::move(sum)); });
  EXPECT_EQ(must(promise.future().get(limit)), 2);
}

TEST(Calls, to_a_killed_actor_fail_with_the_cause) {
  const auto cluster = start_cluster();
  const auto recorder = must(cluster->spawn<Recorder>({.name = "victim"}).get(limit));
  auto pending = recorder.call<&Recorder::block_for_ms>(20000);
  ASSERT_TRUE(cluster->kill(recorder).ok());
  const auto lost = pending.get(limit);
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::actor_died);
  EXPECT_NE(lost.error().message.find("SIGKILL"), std::string::npos) << lost.error().message;
  const auto later = recorder.call<&Recorder::record>(1).get(limit);
  ASSERT_FALSE(later.ok());
  EXPECT_EQ(later.error().code, ErrorCode::actor_died);
  EXPECT_NE(later.error().message.find("victim"), std::string::npos) << later.error().message;
}

TEST(Calls, of_a_process_that_knows_of_no_death_yet_fail_with_the_cause_too) {
  const auto cluster = start_cluster();
  const auto caller = must(cluster->spawn<Insider>({}).get(limit));
  const auto killed = must(cluster->spawn<Counter>({.name = "victim"}, 0).get(limit));
  const auto stopped = must(cluster->spawn<Counter>({.process = "home"}, 0).get(limit));
  const auto neighbour = must(cluster->spawn<Counter>({.process = "home"}, 0).get(limit));
  ASSERT_TRUE(cluster->kill(killed).ok());
  Deadline deadline(limit);
  while (killed.call<&Counter::add>(1).get(limit).ok()) {  // until its death is known here
    ASSERT_FALSE(deadline.is_over());
  }
  ASSERT_TRUE(cluster->stop(stopped).ok());
  const auto of_killed = caller.call<&Insider::add_through>(killed, 1).get(limit);
  ASSERT_FALSE(of_killed.ok());
  EXPECT_NE(of_killed.error().message.find("SIGKILL"), std::string::npos)
      << of_killed.error().message;
  const auto of_stopped = caller.call<&Insider::add_through>(stopped, 1).get(limit);
  ASSERT_FALSE(of_stopped.ok());
  EXPECT_NE(of_stopped.error().message.find("was stopped"), std::string::npos)
      << of_stopped.error().message;
  EXPECT_TRUE(caller.call<&Insider::add_through>(neighbour, 1).get(limit).ok());
}

TEST(Calls, through_an_empty_handle_or_after_shutdown_fail) {
  const ActorHandle<Counter> empty;
  EXPECT_EQ(empty.call<&Counter::add>(1).get(1s).error().code, ErrorCode::invalid_argument);
  auto cluster = start_cluster();
  const auto counter = must(cluster->spawn<Counter>({}, 1).get(limit));
  cluster.reset();
  EXPECT_EQ(counter.call<&Counter::add>(1).get(1s).error().code, ErrorCode::cancelled);
}

}  // namespace troupe::test
