#pragma once

#include <chrono>
#include <cstdint>

#include "runtime/base/deadline.hpp"

namespace troupe {

/// Decides which processes the kernel has killed because memory had run out: it counts such kills
/// and does not say whom. A process that SIGKILL ends soon after the count has grown is one, unless
/// it was killed by its own job. A plain class; takes the time as an argument, and counts none in
/// which this process was stopped (Deadline). Not synchronised.
class OomBlame {
 public:
  using Clock = Deadline::Clock;
  /// From a kill until the process has given its memory back and its end is seen. Older kills were
  /// of processes that are not watched here.
  static constexpr std::chrono::seconds memory{10};
  /// The count is to be noted at least so often, so that the kills of others are known to be old.
  static constexpr std::chrono::seconds between_notes{2};

  /// The count so far says nothing about processes of this job.
  void begin(std::uint64_t count) { known_ = count; }

  /// Call it a few times a second. True if the count is to be read, and noted.
  bool is_due(Clock::time_point now) {
    forget_old(now);
    return next_note_.is_over(now);
  }

  /// Takes note of the count.
  void note(std::uint64_t count, Clock::time_point now) {
    forget_old(now);
    next_note_ = Deadline(between_notes, now);
    if (count <= known_) return;
    open_ += count - known_;
    known_ = count;
    recent_ = Deadline(memory, now);
  }

  /// SIGKILL has ended a process, which its own job has not sent. Returns true if the kernel did
  /// that as memory had run out. The count is that after the end.
  bool take(std::uint64_t count, Clock::time_point now) {
    note(count, now);
    if (open_ == 0) return false;
    --open_;
    return true;
  }

 private:
  void forget_old(Clock::time_point now) {
    if (open_ > 0 && recent_.is_over(now)) open_ = 0;
  }

  std::uint64_t known_ = 0;
  std::uint64_t open_ = 0;   ///< kills of lately whose process is not known
  Deadline recent_{{}, {}};  ///< over: those are old
  Deadline next_note_{{}, {}};
};

}  // namespace troupe
