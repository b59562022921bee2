#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <utility>

#include "runtime/base/task_pool.hpp"

namespace troupe::test {

/// A pool finds a wait that is not announced (BlockingScope) after 10 ms at the earliest.
constexpr double least_ms_to_find_a_wait = 10;

/// The least of ten times that a task had to wait for the only thread of a TaskPool, which was in
/// `wait`, [ms]. `end` is called from another thread once that task has begun, and ends the wait.
inline double least_ms_behind(const std::function<void()>& wait, const std::function<void()>& end) {
  using Clock = std::chrono::steady_clock;
  class Task final : public PoolTask {
   public:
    explicit Task(std::function<void()> what) : what_(std::move(what)) {}
    void run_task() noexcept override { what_(); }

   private:
    const std::function<void()> what_;
  };
  double least = 1e9;
  TaskPool pool({.parallel = 1});
  if (!pool.start().ok()) throw std::runtime_error("the pool did not start");
  for (int attempt = 0; attempt < 10; ++attempt) {
    std::promise<void> begun, over;
    std::promise<Clock::time_point> next_begun;
    pool.submit(std::make_shared<Task>([&] {
      begun.set_value();
      wait();
      over.set_value();
    }));
    begun.get_future().wait();
    const auto start = Clock::now();
    pool.submit(std::make_shared<Task>([&] { next_begun.set_value(Clock::now()); }));
    const auto at = next_begun.get_future().get();
    least = std::min(least, std::chrono::duration<double, std::milli>(at - start).count());
    end();
    over.get_future().wait();
  }
  (void)pool.stop(std::chrono::seconds(10));
  return least;
}

}  // namespace troupe::test
