#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// A process of this machine, from /proc/PID/stat (proc_pid_stat(5)).
struct ProcessEntry {
  int pid = 0;
  int parent = 0;
  std::uint64_t started = 0;  ///< clock ticks since the boot; with the pid it names one process
};

/// Errors: not_found if there is no such process.
Result<ProcessEntry> process_entry(int pid);
/// The processes whose parent is `pid`, in the order of their pids.
std::vector<ProcessEntry> children_of(int pid);
/// Resident memory of a process (VmRSS), in bytes. Errors: not_found.
Result<std::uint64_t> resident_bytes(int pid);

}  // namespace troupe
