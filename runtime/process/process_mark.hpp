#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/result.hpp"

namespace troupe {

/// Identifies a process for ever, so that another process of its machine can tell whether it still
/// lives, although its pid may have gone to a third one.
struct ProcessMark {
  /// The machine over all its boots: its id (machine-id(5)) and host name; empty if it has no id.
  std::string machine;
  std::string boot;        ///< of the machine, as the kernel names it
  std::string namespaces;  ///< in which pid and start are counted
  int pid = 0;
  std::uint64_t started = 0;  ///< clock ticks since the boot

  friend bool operator==(const ProcessMark&, const ProcessMark&) = default;
};

/// The mark of this process. Errors: io if /proc does not tell.
Result<ProcessMark> own_process_mark();

/// When the process was started, in clock ticks since the boot; none if it is not there.
std::optional<std::uint64_t> start_of_process(int pid);

/// Whether the process has ended: seen from the boot and the namespaces that it is of, or because
/// its machine was booted since. Empty elsewhere.
std::optional<bool> has_ended(const ProcessMark& mark);

/// Waits until the process has ended, at most `timeout`; false if it has not, or if that cannot be
/// seen from here.
bool wait_for_end(const ProcessMark& mark, std::chrono::milliseconds timeout);

}  // namespace troupe
