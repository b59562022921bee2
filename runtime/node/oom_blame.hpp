#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace troupe {

/// Decides which processes the kernel has killed because memory had run out: it counts such kills
/// and does not say whom. A process that SIGKILL ends soon after the count has grown is one, unless
/// it was killed by its own job. A plain class; takes the time as an argument. Not synchronised.
class OomBlame {
 public:
  using Clock = std::chrono::steady_clock;
  /// From a kill until the process has given its memory back and its end is seen. Older kills were
  /// of processes that are not watched here.
  static constexpr std::chrono::seconds memory{10};

  /// The count so far says nothing about processes of this job.
  void begin(std::uint64_t count) { known_ = count; }

  /// Takes note of the count, as often as may be.
  void note(std::uint64_t count, Clock::time_point now) {
    if (now - grew_at_ > memory) open_ = 0;
    if (count <= known_) return;
    open_ += count - known_;
    known_ = count;
    grew_at_ = now;
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
  std::uint64_t known_ = 0;
  std::uint64_t open_ = 0;  ///< kills of lately whose process is not known
  Clock::time_point grew_at_{};
};

}  // namespace troupe
