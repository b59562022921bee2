#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/call/actor_address.hpp"

namespace troupe {

/// Restarts actors when they are due, on a thread of its own. Callable from any thread.
class RestartTimer {
 public:
  using Clock = std::chrono::steady_clock;
  explicit RestartTimer(std::function<void(ActorId actor)> restart);
  ~RestartTimer();  ///< stops
  RestartTimer(const RestartTimer&) = delete;
  RestartTimer& operator=(const RestartTimer&) = delete;

  void add(ActorId actor, Clock::time_point due);
  /// No restart begins after this returns. Not to be called from a restart. Idempotent.
  void stop();

 private:
  void run();

  const std::function<void(ActorId)> restart_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Clock::time_point, ActorId> due_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace troupe
