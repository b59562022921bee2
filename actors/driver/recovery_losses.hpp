#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/actor/actor_down.hpp"

namespace troupe {

/// The losses since the last recovery of a step domain was complete. Callable from any thread.
class RecoveryLosses {
 public:
  using Clock = std::chrono::steady_clock;

  /// Notes a loss. False if it is no part of a recovery and is not kept: there were none before,
  /// and it `matters` not, since what was lost has been replaced by an earlier one.
  bool note(const ActorDown& down, bool matters, Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    if (all_.empty() && !matters) return false;
    if (all_.empty()) since_ = now;
    all_.push_back(down);
    return true;
  }

  std::vector<ActorDown> all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return all_.size();
  }
  bool empty() const { return size() == 0; }
  /// When the first of them was noted.
  Clock::time_point since() const {
    const std::lock_guard lock(mutex_);
    return since_;
  }
  /// The recovery is complete: returns all, and forgets them.
  std::vector<ActorDown> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(all_, {});
  }

 private:
  mutable std::mutex mutex_;
  std::vector<ActorDown> all_;
  Clock::time_point since_{};
};

}  // namespace troupe
