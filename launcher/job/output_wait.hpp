#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "launcher/batch/output/batch_writer.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// A job's wait for room on the disk of its output: what a person is told, and when it is over. A
/// plain class; takes the time as an argument. Time in which the job was stopped does not count
/// (Deadline).
class OutputWait {
 public:
  using Clock = std::chrono::steady_clock;
  /// The most that waits in memory.
  static constexpr std::size_t max_bytes = std::size_t{1} << 30;

  /// `output`: the file's path, or "-". `limit_seconds`: job.disk_full_wait_seconds.
  OutputWait(std::string output, std::int64_t limit_seconds)
      : output_(std::move(output)), limit_seconds_(limit_seconds) {}

  /// Takes what waits now, null for nothing, and returns what a person is told; mostly empty.
  /// Call it a few times a second. Errors: resource_exhausted once the wait is too long, or too
  /// much waits.
  Result<std::string> update(const OutputBacklog* backlog, Clock::time_point now);

  /// The wait in a few words: "waiting 12 s of at most 5:00 for room on the disk of out.jsonl".
  /// Empty if there is none.
  std::string notice(Clock::time_point now) const;

 private:
  struct Wait {
    Clock::time_point since;
    Deadline limit;
    std::size_t lines = 0;  ///< that waited when last seen
  };
  std::string output_;
  std::int64_t limit_seconds_;
  std::optional<Wait> wait_;
};

/// What a job that ends now loses: "31 lines that the disk had no room for are lost, and are
/// computed again". Empty if nothing waits.
std::string lost_with(const OutputBacklog* backlog);

}  // namespace troupe
