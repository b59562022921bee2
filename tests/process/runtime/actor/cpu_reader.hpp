#pragma once

#include <thread>
#include <vector>

#include <unistd.h>

#include "runtime/actor/cluster.hpp"
#include "runtime/process/cpu_affinity.hpp"

namespace troupe::test {

/// Tells on which CPUs it may run.
class CpuReader {
 public:
  int pid() { return ::getpid(); }
  std::vector<int> cpus() { return usable_cpus(); }
  /// Those of a thread that it starts.
  std::vector<int> cpus_of_new_thread() {
    std::vector<int> cpus;
    std::thread([&] { cpus = usable_cpus(); }).join();
    return cpus;
  }

  static constexpr std::string_view actor_type = "CpuReader";
  using Methods =
      troupe::Methods<&CpuReader::pid, &CpuReader::cpus, &CpuReader::cpus_of_new_thread>;
};

}  // namespace troupe::test
