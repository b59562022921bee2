#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace troupe {

/// Where the machine describes itself; another one in tests.
struct MachineFiles {
  std::filesystem::path gpus = "/proc/driver/nvidia/gpus";  ///< a folder for each PCI address
  std::filesystem::path device_files = "/dev";              ///< nvidia0, nvidia1 ...
  std::filesystem::path pci_devices = "/sys/bus/pci/devices";
};

/// Returns the ids of the CPUs that the NVIDIA GPUs `visible`, a CUDA_VISIBLE_DEVICES, are attached
/// to. Its numbers are taken for places in the order of PCI addresses among the GPUs whose device
/// file this process may open: CUDA counts so if they are all alike. Empty if that is not known, as
/// for GPUs that are not given by number.
std::vector<int> cpus_near_gpus(std::string_view visible, const MachineFiles& files = {});

}  // namespace troupe
