#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/result.hpp"

namespace troupe {

/// Identifies a process for as long as its machine runs, so that another process can tell whether
/// it still lives, although its pid may have gone to a third one.
struct ProcessMark {
  /// The boot of the machine and the namespaces in which pid and start are counted: only who has
  /// the same can judge.
  std::string machine;
  int pid = 0;
  std::uint64_t started = 0;  ///< clock ticks since the boot

  friend bool operator==(const ProcessMark&, const ProcessMark&) = default;
};

/// The mark of this process. Errors: io if /proc does not tell.
Result<ProcessMark> own_process_mark();

/// Whether the process has ended; empty if it is of another machine, boot or pid namespace.
std::optional<bool> has_ended(const ProcessMark& mark);

/// Waits until the process has ended, at most `timeout`; false if it has not, or if that cannot be
/// seen from here.
bool wait_for_end(const ProcessMark& mark, std::chrono::milliseconds timeout);

}  // namespace troupe
