#pragma once

#include "runtime/base/deadline.hpp"

namespace troupe {

/// How long somebody may be silent before it counts as dead, by a Deadline: time in which the one
/// who waits did not run is not held against the other. A value, to be looked at every Deadline::
/// slice or more often. Not synchronised.
class Lease {
 public:
  using Clock = Deadline::Clock;

  explicit Lease(Clock::duration limit, Clock::time_point now = Clock::now())
      : limit_(limit), deadline_(limit, now) {}

  /// The other has shown that it lives.
  void renew(Clock::time_point now = Clock::now()) { deadline_ = Deadline(limit_, now); }
  /// Until resume() silence does not count, because it is known why the other is silent.
  void suspend() { is_suspended_ = true; }
  void resume(Clock::time_point now = Clock::now()) {
    is_suspended_ = false;
    renew(now);
  }
  /// Looks: true once the other was silent too long.
  bool has_expired(Clock::time_point now = Clock::now()) {
    return !is_suspended_ && deadline_.is_over(now);
  }

 private:
  Clock::duration limit_;
  Deadline deadline_;
  bool is_suspended_ = false;
};

}  // namespace troupe
