#pragma once

#include <chrono>
#include <optional>

namespace troupe {

/// How far a job has been asked to stop: the first signal lets running requests finish within a
/// grace time; a second one does not. No clock of its own. One thread at a time.
class StopRequest {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Wish {
    none,
    drain,    ///< begin nothing new, finish what runs
    give_up,  ///< the same, but the grace time is over
    at_once,  ///< a second signal
  };

  explicit StopRequest(std::chrono::duration<double> grace) : grace_(grace) {}

  /// Returns the wish at `now`, after `signals` signals in all.
  Wish wish(int signals, Clock::time_point now) {
    if (signals >= 2) return Wish::at_once;
    if (signals == 0) return Wish::none;
    if (!first_) first_ = now;
    return now - *first_ >= grace_ ? Wish::give_up : Wish::drain;
  }

 private:
  std::chrono::duration<double> grace_;
  std::optional<Clock::time_point> first_;
};

}  // namespace troupe
