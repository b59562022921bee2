#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace troupe {

/// How often an actor may still be started again, and how long to wait before: not at all at first,
/// then twice as long each time, until an incarnation has lived for a while. Not synchronised.
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
    if (now - started_ >= long_life) next_delay_ = std::chrono::milliseconds(0);
    const auto delay = next_delay_;
    next_delay_ = std::clamp(2 * delay, first_delay, longest_delay);
    return delay;
  }
  /// Takes all of them.
  void cancel() { left_ = 0; }

 private:
  int left_;
  std::chrono::milliseconds next_delay_{0};
  Clock::time_point started_{};
};

}  // namespace troupe
