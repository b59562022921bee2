#pragma once

#include <algorithm>
#include <chrono>

#include "runtime/actor/cluster.hpp"

namespace troupe {

/// Has the agents of lost nodes started again, at growing pauses. One thread at a time.
class LostNodeStarts {
 public:
  using Clock = std::chrono::steady_clock;

  /// Starts them if the pause is over; true if it was.
  bool start_if_due(Cluster& cluster, Clock::time_point now) {
    if (now < next_) return false;
    cluster.start_lost_nodes();
    next_ = now + pause_;
    pause_ = std::min(2 * pause_, longest_pause);
    return true;
  }

 private:
  static constexpr std::chrono::milliseconds longest_pause{2000};

  std::chrono::milliseconds pause_{250};
  Clock::time_point next_{};
};

}  // namespace troupe
