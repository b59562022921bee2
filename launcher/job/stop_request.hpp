#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "runtime/base/deadline.hpp"

namespace troupe {

/// How far a job has been asked to stop: the first signal lets running requests finish within a
/// grace time; a second one does not. No clock of its own: time in which the job was stopped
/// (Ctrl-Z) does not count as grace, if asked a few times a second (Deadline). One thread at a
/// time.
class StopRequest {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Wish {
    none,
    drain,    ///< begin nothing new, finish what runs
    give_up,  ///< the same, but the grace time is over
    at_once,  ///< a second signal
  };

  explicit StopRequest(std::chrono::duration<double> grace)
      : wait_(std::chrono::ceil<Clock::duration>(
            std::min<std::chrono::duration<double>>(grace, std::chrono::years(1)))) {}

  /// Returns the wish at `now`, after `signals` signals in all.
  Wish wish(int signals, Clock::time_point now) {
    if (signals >= 2) return Wish::at_once;
    if (signals == 0) return Wish::none;
    if (!grace_) grace_.emplace(wait_, now);
    return grace_->is_over(now) ? Wish::give_up : Wish::drain;
  }

 private:
  Clock::duration wait_;
  std::optional<Deadline> grace_;  ///< since the first signal
};

}  // namespace troupe
