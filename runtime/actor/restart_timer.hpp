#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/actor/due_restart.hpp"

namespace troupe {

/// Restarts actors when they are due, on a thread of its own. Callable from any thread.
class RestartTimer {
 public:
  using Clock = std::chrono::steady_clock;
  explicit RestartTimer(std::function<void(const DueRestart& restart)> restart);
  ~RestartTimer();  ///< stops
  RestartTimer(const RestartTimer&) = delete;
  RestartTimer& operator=(const RestartTimer&) = delete;

  void add(const DueRestart& restart);
  /// No restart begins after this returns. Not to be called from a restart. Idempotent.
  void stop();

 private:
  void run();

  const std::function<void(const DueRestart&)> restart_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Clock::time_point, DueRestart> due_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace troupe
