#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>

namespace troupe {

/// Waits so long, or until `stop` is requested; true if it is.
inline bool stops_within(const std::stop_token& stop, std::chrono::nanoseconds wait) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  return stopped.wait_for(lock, stop, wait, [&] { return stop.stop_requested(); });
}

}  // namespace troupe
