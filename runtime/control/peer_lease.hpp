#pragma once

#include <atomic>

#include "runtime/base/lease.hpp"

namespace troupe {

/// The lease of a peer whose frames come in on one thread and whose silence another one looks at:
/// a frame renews it without waking or waiting for anybody.
class PeerLease {
 public:
  using Clock = Lease::Clock;

  explicit PeerLease(Clock::duration limit, Clock::time_point now = Clock::now())
      : limit_(limit), heard_at_(now), lease_(limit, now), seen_(now) {}

  /// The peer has shown that it lives. From any thread, as the two below.
  void hear(Clock::time_point now = Clock::now()) { heard_at_ = now; }
  /// Ignores silence until resume(), because the reason for it is known.
  void suspend() { is_suspended_ = true; }
  void resume(Clock::time_point now = Clock::now()) {
    hear(now);
    is_suspended_ = false;
  }

  /// Returns how long the peer may still be silent, 0 once it was silent for too long. From one
  /// thread, every Deadline::slice or more often.
  Clock::duration left(Clock::time_point now = Clock::now()) {
    if (is_suspended_) return limit_;
    const Clock::time_point heard = heard_at_;
    if (heard != seen_) lease_.renew(heard);
    seen_ = heard;
    return lease_.left(now);
  }

 private:
  const Clock::duration limit_;
  std::atomic<Clock::time_point> heard_at_;
  std::atomic<bool> is_suspended_ = false;
  Lease lease_;
  Clock::time_point seen_;  ///< when the peer was heard that the lease is renewed by
};

}  // namespace troupe
