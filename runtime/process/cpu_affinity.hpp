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

/// Binds all threads of this process to those of its CPUs that a PCI device is attached to, by the
/// file `local_cpulist` in the device's folder, e.g. /sys/bus/pci/devices/0000:19:00.0. Threads
/// that are started later inherit that. Returns how many CPUs are left; none, with nothing changed,
/// if the file names none or all of this process's CPUs, is not there or cannot be read, or the
/// kernel refuses.
std::optional<int> bind_to_cpus_near(const std::filesystem::path& device);

}  // namespace troupe
