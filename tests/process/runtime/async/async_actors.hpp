#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "runtime/actor/cluster.hpp"

namespace troupe::test {

using namespace std::chrono_literals;

/// A bound for waits that end at once when all is well; generous, because machines are busy.
inline constexpr auto limit = 30s;

template <class T>  // NOLINTNEXTLINE(performance-unnecessary-value-param): moved from unless void
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().message);
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

/// Coroutines, streams and timers of an actor in a process of its own.
class Worker {
 public:
  explicit Worker(ActorContext& context) : context_(context) {}

  int pid() { return ::getpid(); }
  int double_of(int number) { return 2 * number; }
  /// Asks all others at the same time, and itself.
  Async<int> sum_of_doubles(std::vector<ActorHandle<Worker>> others, int number) {
    std::vector<Future<int>> answers;
    for (const auto& other : others) answers.push_back(other.call<&Worker::double_of>(number));
    answers.push_back(context_.self<Worker>().call<&Worker::double_of>(number));
    int sum = 0;
    for (auto& answer : answers) {
      TROUPE_CO_TRY(const int one, co_await answer);
      sum += one;
    }
    co_return sum;
  }
  Async<void> sleep(int ms) { (void)co_await sleep_for(std::chrono::milliseconds(ms)); }
  /// Numbers without end; counts those that have ended.
  Stream<int> numbers() {
    struct Ending {
      int& ended;
      ~Ending() { ++ended; }
    };
    const Ending ending(ended_);
    for (int i = 0;; ++i) co_yield i;
  }
  int ended_streams() { return ended_; }
  /// Puts so many objects of so many bytes, one after the other, and keeps none.
  Stream<ObjectRef<std::string>> objects(int count, int bytes) {
    for (int i = 0; i < count; ++i) {
      co_yield context_.put(
          std::string(static_cast<std::size_t>(bytes), static_cast<char>('a' + i % 26)));
    }
  }
  int objects_owned() { return static_cast<int>(context_.objects().counts().owned); }
  /// Reads some of the objects of another one, and then waits for its own end.
  Async<int> hold_objects(ActorHandle<Worker> other, int count) {
    auto objects = other.call<&Worker::objects>(1000, 10);
    std::vector<ObjectRef<std::string>> held;
    for (int i = 0; i < count; ++i) {
      TROUPE_CO_TRY(auto object, co_await objects.next());
      held.push_back(std::move(*object));
    }
    read_ = count;
    TROUPE_CO_CHECK(co_await sleep_for(1h));
    co_return 0;
  }
  /// Reads some of the numbers of another one, and then waits for its own end.
  Async<int> read_and_wait(ActorHandle<Worker> other, int count) {
    auto numbers = other.call<&Worker::numbers>();
    for (int i = 0; i < count; ++i) {
      TROUPE_CO_TRY(const auto number, co_await numbers.next());
      if (number != i) co_return fail(ErrorCode::internal, "got another number than {}", i);
    }
    read_ = count;
    TROUPE_CO_CHECK(co_await sleep_for(1h));
    co_return 0;
  }
  int read() { return read_; }
  void tick() {
    timer_ = context_.run_every(5ms, [this] { ++ticks_; });
  }
  int ticks() { return ticks_; }

  static constexpr std::string_view actor_type = "Worker";
  using Methods =
      troupe::Methods<&Worker::pid, &Worker::double_of, &Worker::sum_of_doubles, &Worker::sleep,
                      &Worker::numbers, &Worker::ended_streams, &Worker::read_and_wait,
                      &Worker::read, &Worker::tick, &Worker::ticks, &Worker::objects,
                      &Worker::objects_owned, &Worker::hold_objects>;

 private:
  ActorContext& context_;
  int ended_ = 0, read_ = 0, ticks_ = 0;
  TimerToken timer_;
};

/// Methods that wait for each other, on several threads.
class Meeting {
 public:
  /// Returns when so many have come.
  Result<int> meet(int count) {
    std::unique_lock lock(mutex_);
    ++came_;
    changed_.notify_all();
    if (!wait_for(changed_, lock, limit, [&] { return came_ >= count; })) {
      return fail(ErrorCode::timed_out, "{} of {} came", came_, count);
    }
    return came_;
  }
  static constexpr std::string_view actor_type = "Meeting";
  using Methods = troupe::Methods<&Meeting::meet>;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int came_ = 0;
};

}  // namespace troupe::test
