#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "runtime/base/blocking.hpp"

namespace troupe {

/// When a bounded wait gives up: after so much time *in which this process ran*. While a process is
/// stopped (SIGSTOP, a frozen control group, a paused container, a suspended machine) the clock
/// goes on, but those it waits for are mostly stopped with it and cannot answer.
///
/// No clock of the kernel tells the two apart, so a waiter looks at the deadline repeatedly: it
/// waits in slices, until next_look(), and each look counts the time since the look before, but at
/// most twice the slice. A wait therefore never ends early, and a long stop costs it half a second.
/// Time a thread spends between two looks is capped in the same way.
///
/// A value without a thread or shared state; monotonic. Not synchronised.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds slice{250};

  explicit Deadline(Clock::duration wait, Clock::time_point now = Clock::now())
      : left_(std::max(wait, Clock::duration::zero())), seen_(now) {}

  /// Looks: returns what is left of the wait, 0 once it is over.
  Clock::duration left(Clock::time_point now = Clock::now()) {
    const auto passed =
        std::clamp<Clock::duration>(now - seen_, Clock::duration::zero(), 2 * slice);
    seen_ = now;
    left_ -= std::min(left_, passed);
    return left_;
  }
  bool is_over(Clock::time_point now = Clock::now()) {
    return left(now) == Clock::duration::zero();
  }

  /// Looks, and returns until when to wait at most before the next look.
  Clock::time_point next_look(Clock::time_point now = Clock::now()) {
    return now + std::min<Clock::duration>(left(now), slice);
  }

 private:
  Clock::duration left_;
  Clock::time_point seen_;
};

/// `deadline_in(std::chrono::seconds(2))`.
inline Deadline deadline_in(Deadline::Clock::duration wait) { return Deadline(wait); }

/// Waits on a condition variable until `ready()` or the deadline; returns the last `ready()`. A
/// wait is announced (BlockingScope).
template <class Ready>
bool wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                Deadline& deadline, Ready ready) {
  if (ready()) return true;
  if (deadline.is_over()) return false;
  const BlockingScope waits;
  while (!ready()) {
    if (deadline.is_over()) return false;
    changed.wait_until(lock, deadline.next_look());
  }
  return true;
}
template <class Ready>
bool wait_for(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
              Deadline::Clock::duration wait, Ready ready) {
  Deadline deadline(wait);
  return wait_until(changed, lock, deadline, ready);
}

}  // namespace troupe
