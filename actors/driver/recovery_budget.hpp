#pragma once

#include <chrono>
#include <deque>

#include "actors/api/engine_spec.hpp"

namespace troupe {

/// How often an engine may still recover. Takes the time as an argument. Not synchronised.
class RecoveryBudget {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RecoveryBudget(const RestartLimit& limit) : limit_(limit) {}

  /// Takes one recovery; false if there were RestartLimit::max within the last per_minutes already.
  bool take(Clock::time_point now) {
    while (!taken_.empty() && now - taken_.front() >= std::chrono::minutes(limit_.per_minutes)) {
      taken_.pop_front();
    }
    if (std::ssize(taken_) >= limit_.max) return false;
    taken_.push_back(now);
    return true;
  }

 private:
  RestartLimit limit_;
  std::deque<Clock::time_point> taken_;  ///< within per_minutes, oldest first
};

}  // namespace troupe
