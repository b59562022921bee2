#include "runtime/node/gpu_cpus.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>

#include <unistd.h>

#include "runtime/process/cpu_affinity.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;

/// The number of a GPU's device file, which its description has behind "Device Minor:".
std::optional<int> minor_of(const fs::path& gpu) {
  constexpr std::string_view key = "Device Minor:";
  std::ifstream file(gpu / "information");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t begin = line.find_first_not_of(" \t", key.size());
    if (begin == line.npos) return std::nullopt;
    int minor = 0;
    const auto [end, problem] =
        std::from_chars(line.data() + begin, line.data() + line.size(), minor);
    if (problem == std::errc{}) return minor;
  }
  return std::nullopt;
}

/// The PCI addresses of the GPUs that this process may open, in order.
std::vector<std::string> usable_gpus(const MachineFiles& files) {
  std::vector<std::string> addresses;
  std::error_code problem;
  for (fs::directory_iterator gpu(files.gpus, problem), end; !problem && gpu != end;
       gpu.increment(problem)) {
    const auto minor = minor_of(gpu->path());
    if (!minor) continue;
    const fs::path device = files.device_files / ("nvidia" + std::to_string(*minor));
    if (::access(device.c_str(), R_OK | W_OK) == 0) {
      addresses.push_back(gpu->path().filename().string());
    }
  }
  std::ranges::sort(addresses);
  return addresses;
}

}  // namespace

std::vector<int> cpus_near_gpus(std::string_view visible, const MachineFiles& files) {
  const std::vector<std::string> gpus = usable_gpus(files);
  const auto numbers = parse_cpu_list(visible);  // a list of the same form
  if (!numbers.ok()) return {};
  std::vector<int> cpus;
  for (const int number : *numbers) {
    if (static_cast<std::size_t>(number) >= gpus.size()) return {};
    const auto near = cpus_near(files.pci_devices / gpus[static_cast<std::size_t>(number)]);
    cpus.insert(cpus.end(), near.begin(), near.end());
  }
  return cpus;
}

}  // namespace troupe
