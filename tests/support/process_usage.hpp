#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include <malloc.h>

namespace troupe::test {

/// Seconds of CPU that all threads of a process have used, from their schedulers' accounts in ns; 0
/// if it has ended.
inline double cpu_seconds_of(int pid) {
  double used = 0;
  std::error_code gone;
  const auto threads = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& thread : std::filesystem::directory_iterator(threads, gone)) {
    double ns = 0;
    if (std::ifstream(thread.path() / "schedstat") >> ns) used += ns / 1e9;
  }
  return used;
}

/// The proportional set size of a process in MB; 0 if it has ended.
inline double memory_mb_of(int pid) {
  std::ifstream rollup("/proc/" + std::to_string(pid) + "/smaps_rollup");
  std::string word;
  while (rollup >> word) {
    double kibibytes = 0;
    if (word == "Pss:" && rollup >> kibibytes) return kibibytes * 1024 / 1e6;
  }
  return 0;
}

/// Bytes that this process has allocated, whatever the allocator keeps beside them.
inline double heap_bytes() {
  const auto info = ::mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

}  // namespace troupe::test
