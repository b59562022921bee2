#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/actor/async/actor_executor.hpp"
#include "runtime/call/call_hub.hpp"

namespace troupe {

/// What one actor does later: its sleeping coroutines and its timers. All of them together have one
/// timer of the process's call plane. Callable from any thread.
class ActorTimers final : public std::enable_shared_from_this<ActorTimers> {
 public:
  using Clock = std::chrono::steady_clock;

  ActorTimers(std::weak_ptr<ActorExecutor> executor, std::weak_ptr<CallHub> hub)
      : executor_(std::move(executor)), hub_(std::move(hub)) {}

  /// Posts the task to the actor at `due`, or up to a millisecond later; never after close().
  void add(Clock::time_point due, std::shared_ptr<ActorTask> task);
  /// Forgets the task that is due then, unless it has been posted.
  void cancel(Clock::time_point due, const ActorTask& task);
  /// Forgets all tasks, also those that are added later.
  void close();

 private:
  void post_due();
  /// Has post_due called when the first task is due, unless it is going to be called before.
  void arm(std::unique_lock<std::mutex> lock);

  const std::weak_ptr<ActorExecutor> executor_;
  const std::weak_ptr<CallHub> hub_;
  std::mutex mutex_;
  std::map<std::pair<Clock::time_point, const ActorTask*>, std::shared_ptr<ActorTask>> tasks_;
  Clock::time_point armed_for_ = Clock::time_point::max();
  bool is_closed_ = false;
};

/// Cancels a timer (ActorContext::run_after, run_every) when destroyed: on the actor's own thread
/// its function never runs afterwards; on another one it may be running, and then runs to its end.
/// May outlive the actor. Callable from any thread, one at a time.
class [[nodiscard]] TimerToken {
 public:
  TimerToken() = default;
  explicit TimerToken(std::function<void()> cancel) : cancel_(std::move(cancel)) {}
  TimerToken(TimerToken&& other) noexcept : cancel_(std::exchange(other.cancel_, nullptr)) {}
  TimerToken& operator=(TimerToken&& other) noexcept {
    cancel();
    cancel_ = std::exchange(other.cancel_, nullptr);
    return *this;
  }
  ~TimerToken() { cancel(); }

  void cancel() {
    if (auto cancel = std::exchange(cancel_, nullptr)) cancel();
  }
  /// Lets the timer go on until the actor's end.
  void release() { cancel_ = nullptr; }

 private:
  std::function<void()> cancel_;
};

/// Runs `function` on the actor after `delay`, and every `interval` from then on if that is not
/// zero: at the multiples of the interval; those that have passed by the end of a run are left out.
TimerToken start_timer(const std::shared_ptr<ActorTimers>& timers, std::chrono::nanoseconds delay,
                       std::chrono::nanoseconds interval, std::function<void()> function);

}  // namespace troupe
