#pragma once

#include <mutex>

namespace troupe {

/// Tells the processor that this thread waits for another one in a loop.
inline void relax_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Locks a mutex that everybody holds for less time than it takes to put a thread to sleep and to
/// wake it again: tries for a few microseconds before it sleeps.
inline void lock_eagerly(std::unique_lock<std::mutex>& lock) {
  constexpr int tries = 100;
  for (int i = 0; i < tries; ++i) {
    if (lock.try_lock()) return;
    relax_cpu();
  }
  lock.lock();
}
inline std::unique_lock<std::mutex> lock_eagerly(std::mutex& mutex) {
  std::unique_lock lock(mutex, std::defer_lock);
  lock_eagerly(lock);
  return lock;
}

}  // namespace troupe
