#pragma once

#include "runtime/base/deadline.hpp"

namespace troupe {

/// How long a peer may be silent before it counts as dead. Measured by a Deadline, so time in which
/// the waiting process did not run does not count. A value, to be checked every Deadline::slice or
/// more often. Not synchronised.
class Lease {
 public:
  using Clock = Deadline::Clock;

  explicit Lease(Clock::duration limit, Clock::time_point now = Clock::now())
      : limit_(limit), deadline_(limit, now) {}

  /// The peer has shown that it lives.
  void renew(Clock::time_point now = Clock::now()) { deadline_ = Deadline(limit_, now); }
  /// How long the peer may still be silent; 0 once it has expired.
  Clock::duration left(Clock::time_point now = Clock::now()) { return deadline_.left(now); }
  /// True once the peer was silent for too long.
  bool has_expired(Clock::time_point now = Clock::now()) { return deadline_.is_over(now); }

 private:
  Clock::duration limit_;
  Deadline deadline_;
};

}  // namespace troupe
