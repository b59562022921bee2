#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace troupe {

/// How often an actor may still be started again, and how long to wait before. What grows is the
/// least time from one start to the next: none at first, then twice as long each time, until an
/// incarnation has lived for a while. So what ends as soon as it has been started waits longer and
/// longer, and what had worked for longer than that is started at once. Not synchronised.
class RestartBudget {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds first_delay{100}, longest_delay{10000};
  /// An incarnation that has lived so long ends the series.
  static constexpr std::chrono::seconds long_life{60};

  /// `max_restarts` < 0: any number.
  explicit RestartBudget(int max_restarts) : left_(max_restarts) {}

  void note_start(Clock::time_point now) { started_ = now; }
  /// Takes one restart after a death, and returns the delay; empty if none is left.
  std::optional<std::chrono::milliseconds> take(Clock::time_point now) {
    if (left_ == 0) return std::nullopt;
    if (left_ > 0) --left_;
    const auto lived = std::chrono::floor<std::chrono::milliseconds>(now - started_);
    if (lived >= long_life) least_time_ = std::chrono::milliseconds(0);
    const auto delay = std::clamp(least_time_ - lived, std::chrono::milliseconds(0), least_time_);
    least_time_ = std::clamp(2 * least_time_, first_delay, longest_delay);
    started_ = now + delay;  // also if there is no room for it then
    return delay;
  }
  /// Takes all of them.
  void cancel() { left_ = 0; }

 private:
  int left_;
  std::chrono::milliseconds least_time_{0};  ///< between starts
  Clock::time_point started_{};
};

}  // namespace troupe
