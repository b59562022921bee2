#include <chrono>
#include <cstdio>
#include <numeric>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "tests/process/runtime/many_actors/inhabitant.hpp"
#include "tests/support/time_scale.hpp"

namespace troupe::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto limit = 120s;
constexpr int count = 100'000;

template <class T>
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().message);
  return *std::move(result);
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// A process of its own with `count` actors; the driver has a handle of each.
class ManyActors : public testing::Test {
 protected:
  static constexpr const char* process = "crowd";

  ManyActors() : cluster_(must(Cluster::start({}))) {
    census_ = must(cluster_->spawn<Census>({.process = process}).get(limit));
  }
  Figures figures() { return must(census_.call<&Census::figures>().get(limit)); }

  /// Spawns so many, all at once; returns how long that took, in seconds.
  double spawn(int more) {
    const auto begin = Clock::now();
    std::vector<Future<ActorHandle<Inhabitant>>> spawning;
    for (int i = 0; i < more; ++i) {
      const int number = static_cast<int>(actors_.size()) + i;
      spawning.push_back(cluster_->spawn<Inhabitant>({.process = process}, number));
    }
    for (auto& one : spawning) actors_.push_back(must(one.get(limit)));
    return seconds_since(begin);
  }
  void expect_answers_of_all() {
    std::vector<Future<int>> answers;
    for (const auto& actor : actors_) answers.push_back(actor.call<&Inhabitant::number>());
    for (std::size_t i = 0; i < answers.size(); ++i) {
      ASSERT_EQ(must(answers[i].get(limit)), static_cast<int>(i));
    }
  }

  std::unique_ptr<Cluster> cluster_;
  ActorHandle<Census> census_;
  std::vector<ActorHandle<Inhabitant>> actors_;
};

TEST_F(ManyActors, live_in_one_process_that_is_not_the_driver_s) {
  spawn(100);  // threads and whatever else is made once
  expect_answers_of_all();
  const Figures before = figures(), own_before = figures_of_this_process();
  ASSERT_NE(before.pid, own_before.pid);

  constexpr int tenth = count / 10;
  const double first_seconds = spawn(tenth);
  double last_seconds = 0;
  for (int i = 1; i < 10; ++i) last_seconds = spawn(tenth);
  const Figures waiting = figures();
  const auto begin = Clock::now();
  expect_answers_of_all();
  const double answers_seconds = seconds_since(begin);
  const Figures after = figures(), own_after = figures_of_this_process();

  const auto each = [](double bytes_after, double bytes_before) {
    return (bytes_after - bytes_before) / count;
  };
  std::printf(
      "spawned in one process: the first %d at %.0f /s, the last ones of %d at %.0f /s; all have "
      "answered after %.1f s\n"
      "an actor: %.0f bytes before its first call, %.0f after it (resident %.0f), and %.0f in the "
      "driver's process with a handle; %d threads\n",
      tenth, tenth / first_seconds, count, tenth / last_seconds, answers_seconds,
      each(waiting.heap_bytes, before.heap_bytes), each(after.heap_bytes, before.heap_bytes),
      each(after.resident_bytes, before.resident_bytes),
      each(own_after.heap_bytes, own_before.heap_bytes), after.threads);

  EXPECT_EQ(after.pid, before.pid) << "they are in one process, which lives";
  EXPECT_LE(each(waiting.heap_bytes, before.heap_bytes), 1024);
  EXPECT_LE(each(after.heap_bytes, before.heap_bytes), 1024) << "calls leave nothing behind";
  if (time_scale == 1) {  // sanitizers keep freed memory
    EXPECT_LE(each(after.resident_bytes, before.resident_bytes), 4096);
  }
  EXPECT_LE(each(own_after.heap_bytes, own_before.heap_bytes), 2048) << "what the driver knows";
  EXPECT_LE(after.threads, before.threads + 64) << "none has a thread of its own";
  EXPECT_LE(last_seconds, 5 * first_seconds + 1) << "a spawn takes no longer beside many others";
}

TEST(ManyActorsOfTheDriver, cost_a_kibibyte_each_with_a_handle_also_after_calls) {
  const auto cluster = must(Cluster::start({}));
  std::vector<ActorHandle<Inhabitant>> actors;
  actors.reserve(count + 1);
  const auto spawn = [&](int more) {
    std::vector<Future<ActorHandle<Inhabitant>>> spawning;
    for (int i = 0; i < more; ++i) spawning.push_back(cluster->spawn_local<Inhabitant>({}, i));
    for (auto& one : spawning) actors.push_back(must(one.get(limit)));
  };
  const auto call_all = [&] {
    for (const auto& actor : actors) (void)must(actor.call<&Inhabitant::number>().get(limit));
  };
  spawn(1);
  call_all();
  const double before = heap_bytes();
  spawn(count);
  const double waiting = (heap_bytes() - before) / count;
  call_all();
  const double after = (heap_bytes() - before) / count;
  std::printf("an actor of the driver's process: %.0f bytes before its first call, %.0f after it\n",
              waiting, after);
  EXPECT_LE(waiting, 1024);
  EXPECT_LE(after, 1024);
}

TEST_F(ManyActors, are_ended_with_their_process_and_leave_nothing_behind) {
  spawn(count);
  Promise<ActorDown> first, last;
  const auto watches = {
      cluster_->watch(actors_.front(), [first](const ActorDown& down) { first.complete(down); }),
      cluster_->watch(actors_.back(), [last](const ActorDown& down) { last.complete(down); })};
  const auto begin = Clock::now();
  ASSERT_TRUE(cluster_->kill(census_).ok());
  EXPECT_EQ(must(first.future().get(limit)).cause, DownCause::signal);
  EXPECT_EQ(must(last.future().get(limit)).cause, DownCause::signal);
  std::printf("the deaths of %d actors in a killed process were told after %.2f s\n", count,
              seconds_since(begin));
  const auto answer = actors_[count / 2].call<&Inhabitant::number>().get(limit);
  ASSERT_FALSE(answer.ok());
  EXPECT_TRUE(is_actor_gone(answer.error().code)) << answer.error().message;
  const auto again = must(cluster_->spawn<Inhabitant>({.process = process}, 7).get(limit));
  EXPECT_EQ(must(again.call<&Inhabitant::number>().get(limit)), 7);
  EXPECT_EQ(cluster_->actors().size(), 1U) << "the new one";
}

}  // namespace
}  // namespace troupe::test
