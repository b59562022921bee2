#include "tests/process/runtime/async/async_actors.hpp"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::test {
namespace {

using Clock = std::chrono::steady_clock;

/// Asks again until `is_so(answer)`; false after the limit.
template <auto method, class IsSo>
bool wait_until(const ActorHandle<Worker>& worker, IsSo is_so) {
  const auto end = Clock::now() + limit;
  while (Clock::now() < end) {
    if (is_so(must(worker.call<method>().get(limit)))) return true;
    std::this_thread::sleep_for(5ms);
  }
  return false;
}

/// Reads to the error with which a stream ends.
Error end_of(StreamReader<int>& numbers) {
  while (true) {
    const auto next = numbers.next(limit);
    if (!next.ok()) return next.error();
    if (!*next) return {ErrorCode::internal, "the stream has ended without an error"};
  }
}

bool is_death(const Error& error) {
  return error.code == ErrorCode::actor_died || error.code == ErrorCode::peer_died;
}

class AsyncActors : public ::testing::Test {
 protected:
  void SetUp() override { cluster_ = must(Cluster::start({})); }
  ActorHandle<Worker> spawn(SpawnOptions options = {}) {
    return must(cluster_->spawn<Worker>(options).get(limit));
  }

  std::unique_ptr<Cluster> cluster_;
};

TEST_F(AsyncActors, await_actors_of_other_processes_and_themselves) {
  const auto first = spawn();
  const std::vector others{spawn(), spawn({.process = "shared"}), spawn({.process = "shared"})};
  std::vector<Future<int>> sums;
  for (int i = 0; i < 200; ++i) sums.push_back(first.call<&Worker::sum_of_doubles>(others, i));
  for (int i = 0; i < 200; ++i) EXPECT_EQ(must(sums[i].get(limit)), 8 * i);
}

TEST_F(AsyncActors, have_a_thousand_calls_under_way) {
  const auto worker = spawn();
  std::vector<Future<void>> sleeping;
  for (int i = 0; i < 999; ++i) sleeping.push_back(worker.call<&Worker::sleep>(3'600'000));
  EXPECT_TRUE(worker.call<&Worker::sleep>(1).get(limit).ok());
  EXPECT_TRUE(cluster_->stop(worker, limit).ok());
  for (auto& one : sleeping) EXPECT_FALSE(one.get(limit).ok());
}

TEST_F(AsyncActors, run_plain_methods_at_the_same_time_if_they_may) {
  for (const std::string process : {"", "shared"}) {
    const auto meeting =
        must(cluster_->spawn<Meeting>({.process = process, .max_concurrency = 4}).get(limit));
    std::vector<Future<int>> answers;
    for (int i = 0; i < 4; ++i) answers.push_back(meeting.call<&Meeting::meet>(4));
    for (auto& answer : answers) EXPECT_EQ(must(answer.get(limit)), 4);
  }
  const auto refused = cluster_->spawn<Meeting>({.max_concurrency = -1}).get(limit);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
}

TEST_F(AsyncActors, have_timers) {
  const auto worker = spawn();
  must(worker.call<&Worker::tick>().get(limit));
  EXPECT_TRUE(wait_until<&Worker::ticks>(worker, [](int ticks) { return ticks >= 3; }));
}

TEST_F(AsyncActors, end_streams_whose_readers_are_dropped) {
  const auto worker = spawn();
  {
    auto numbers = worker.call<&Worker::numbers>();
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(must(numbers.next(limit)), std::optional(i));
    EXPECT_EQ(must(worker.call<&Worker::ended_streams>().get(limit)), 0);
  }
  EXPECT_TRUE(wait_until<&Worker::ended_streams>(worker, [](int ended) { return ended == 1; }));
}

TEST_F(AsyncActors, end_streams_whose_readers_process_was_killed) {
  const auto worker = spawn();
  const auto reader = spawn();
  auto answer = reader.call<&Worker::read_and_wait>(worker, 20);
  ASSERT_TRUE(wait_until<&Worker::read>(reader, [](int read) { return read == 20; }));
  EXPECT_EQ(must(worker.call<&Worker::ended_streams>().get(limit)), 0);
  ASSERT_EQ(::kill(must(reader.call<&Worker::pid>().get(limit)), SIGKILL), 0);
  EXPECT_TRUE(wait_until<&Worker::ended_streams>(worker, [](int ended) { return ended == 1; }));
  EXPECT_FALSE(answer.get(limit).ok());
}

TEST_F(AsyncActors, tell_readers_that_their_process_was_killed) {
  const auto worker = spawn();
  auto numbers = worker.call<&Worker::numbers>();
  ASSERT_EQ(must(numbers.next(limit)), std::optional(0));
  ASSERT_EQ(::kill(must(worker.call<&Worker::pid>().get(limit)), SIGKILL), 0);
  const Error end = end_of(numbers);
  EXPECT_TRUE(is_death(end)) << end.message;
}

constexpr auto none_left = [](int owned) { return owned == 0; };

TEST_F(AsyncActors, stream_references_that_live_as_long_as_their_readers_have_them) {
  const auto worker = spawn();
  std::vector<ObjectRef<std::string>> held;
  auto objects = worker.call<&Worker::objects>(100, 1000);
  while (true) {
    auto object = must(objects.next(limit));
    if (!object) break;
    held.push_back(*std::move(object));
    std::this_thread::sleep_for(1ms);
  }
  ASSERT_EQ(held.size(), 100U);
  EXPECT_EQ(must(worker.call<&Worker::objects_owned>().get(limit)), 100);
  for (std::size_t i = 0; i < held.size(); ++i) {
    EXPECT_EQ(must(cluster_->get(held[i], limit)).get(),
              std::string(1000, static_cast<char>('a' + i % 26)));
  }
  held.clear();
  EXPECT_TRUE(wait_until<&Worker::objects_owned>(worker, none_left));
}

TEST_F(AsyncActors, give_the_references_back_of_streams_that_are_dropped) {
  const auto worker = spawn();
  {
    auto objects = worker.call<&Worker::objects>(1000, 1000);
    const auto first = must(objects.next(limit));  // others have come, and others wait to be sent
    EXPECT_GT(must(worker.call<&Worker::objects_owned>().get(limit)), 1);
    EXPECT_EQ(must(cluster_->get(*first, limit))->size(), 1000U);
  }
  EXPECT_TRUE(wait_until<&Worker::objects_owned>(worker, none_left));
  (void)worker.call<&Worker::objects>(1000, 1000);  // none was read
  EXPECT_TRUE(wait_until<&Worker::objects_owned>(worker, none_left));
}

TEST_F(AsyncActors, give_the_references_back_of_streams_whose_readers_process_was_killed) {
  const auto worker = spawn(), reader = spawn();
  (void)reader.call<&Worker::hold_objects>(worker, 30);
  EXPECT_TRUE(wait_until<&Worker::read>(reader, [](int read) { return read == 30; }));
  EXPECT_GE(must(worker.call<&Worker::objects_owned>().get(limit)), 30);
  ::kill(must(reader.call<&Worker::pid>().get(limit)), SIGKILL);
  EXPECT_TRUE(wait_until<&Worker::objects_owned>(worker, none_left));
}

TEST_F(AsyncActors, do_not_go_on_with_the_streams_of_an_earlier_incarnation) {
  const auto worker = spawn({.max_restarts = 1});
  auto numbers = worker.call<&Worker::numbers>();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(must(numbers.next(limit)), std::optional(i));
  const int pid = must(worker.call<&Worker::pid>().get(limit));
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  EXPECT_NE(
      [&] {
        for (auto again = worker.call<&Worker::pid>().get(limit);;
             again = worker.call<&Worker::pid>().get(limit)) {
          if (again.ok()) return *again;
        }
      }(),
      pid);
  const Error end = end_of(numbers);
  EXPECT_TRUE(is_death(end)) << end.message;
}

}  // namespace
}  // namespace troupe::test
