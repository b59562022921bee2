#include "tests/bench/compare_ray/in_process_rows.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include "tests/support/process_usage.hpp"

namespace troupe::bench {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto limit = 60s;

class Neighbour {
 public:
  int echo(int value) { return value; }

  static constexpr std::string_view actor_type = "Neighbour";
  using Methods = troupe::Methods<&Neighbour::echo>;
};
using Neighbours = std::vector<ActorHandle<Neighbour>>;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> samples) {
  std::ranges::sort(samples);
  return samples[samples.size() / 2];
}

Result<Neighbours> spawn(Cluster& cluster, std::size_t count) {
  std::vector<Future<ActorHandle<Neighbour>>> spawning;
  spawning.reserve(count);
  for (std::size_t i = 0; i < count; ++i) spawning.push_back(cluster.spawn_local<Neighbour>({}));
  Neighbours actors;
  actors.reserve(count);
  for (auto& one : spawning) {
    TROUPE_TRY(actors.emplace_back(), one.get(limit));
  }
  return actors;
}

Result<void> call(const Neighbours& actors, std::size_t calls) {
  std::vector<Future<int>> answers;
  answers.reserve(calls);
  for (std::size_t i = 0; i < calls; ++i) {
    answers.push_back(actors[i % actors.size()].call<&Neighbour::echo>(1));
  }
  for (auto& answer : answers) {
    TROUPE_TRY([[maybe_unused]] const int value, answer.get(limit));
  }
  return {};
}

Result<void> end(Cluster& cluster, const Neighbours& actors) {
  for (const auto& actor : actors) TROUPE_CHECK(cluster.stop(actor));
  return {};
}

}  // namespace

Result<double> InProcessRows::spawned_per_second() {
  constexpr std::size_t count = 100'000;
  std::vector<double> rates;
  for (int i = 0; i < 3; ++i) {
    const auto begin = Clock::now();
    TROUPE_TRY(const auto actors, spawn(cluster_, count));
    rates.push_back(count / seconds_since(begin));
    TROUPE_CHECK(end(cluster_, actors));
  }
  return median(std::move(rates));
}

Result<double> InProcessRows::calls_per_second() {
  constexpr std::size_t count = 100'000;
  TROUPE_TRY(const auto actors, spawn(cluster_, 1));
  TROUPE_CHECK(call(actors, 1000));
  std::vector<double> rates;
  for (int i = 0; i < 5; ++i) {
    const auto begin = Clock::now();
    TROUPE_CHECK(call(actors, count));
    rates.push_back(count / seconds_since(begin));
  }
  TROUPE_CHECK(end(cluster_, actors));
  return median(std::move(rates));
}

Result<InProcessRows::Memory> InProcessRows::bytes_per_actor() {
  constexpr std::size_t count = 10'000;
  TROUPE_TRY(const auto first, spawn(cluster_, 1));  // the threads
  TROUPE_CHECK(call(first, 1));
  const double before = test::heap_bytes();
  TROUPE_TRY(const auto actors, spawn(cluster_, count));
  Memory memory;
  memory.waiting = (test::heap_bytes() - before) / count;
  TROUPE_CHECK(call(actors, 10 * count));
  memory.waiting_again = (test::heap_bytes() - before) / count;
  TROUPE_CHECK(end(cluster_, actors));
  return memory;
}

}  // namespace troupe::bench
