#pragma once

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// Returns the CPUs of a list as the kernel writes it, e.g. "0-3,8,10-11". Errors:
/// invalid_argument, with the list.
Result<std::vector<int>> parse_cpu_list(std::string_view list);

/// Returns the ids of the CPUs that this thread may run on, ascending.
std::vector<int> usable_cpus();
/// The number of them, at least 1: how many threads that compute pay.
int usable_cpu_count();

/// Returns the ids of the CPUs that a PCI device is attached to, by the file `local_cpulist` in the
/// device's folder, e.g. /sys/bus/pci/devices/0000:19:00.0. Empty if it is not there or cannot be
/// read.
std::vector<int> cpus_near(const std::filesystem::path& device);

/// Binds all threads of this process to those of its CPUs that are near a PCI device (cpus_near).
/// Threads that are started later inherit that. Returns how many CPUs are left; none, with nothing
/// changed, if none or all of this process's CPUs are near it, or the kernel refuses.
std::optional<int> bind_to_cpus_near(const std::filesystem::path& device);

}  // namespace troupe
