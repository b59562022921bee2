#include "models/ops/device/cuda_library.hpp"

#include <array>

#include <cuda_runtime.h>

#include "models/ops/cuda/cuda_collectives.hpp"

namespace troupe {
namespace {

int count_devices() {
  int devices = 0, usable = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) return 0;
  while (usable < devices && cuda_device_runs_this_build(usable)) ++usable;
  return usable;
}

/// Creates no context on the device, unlike cudaMemGetInfo.
std::uint64_t device_memory(int device) {
  cudaDeviceProp properties{};
  return cudaGetDeviceProperties(&properties, device) == cudaSuccess ? properties.totalGlobalMem
                                                                     : 0;
}

std::string pci_address(int device) {
  std::array<char, 32> address{};
  if (cudaDeviceGetPCIBusId(address.data(), address.size(), device) != cudaSuccess) return {};
  return address.data();
}

}  // namespace
}  // namespace troupe

extern "C" __attribute__((visibility("default"))) const troupe::CudaLibrary* troupe_cuda_library() {
  static const troupe::CudaLibrary library{.interface = troupe::cuda_interface,
                                           .count_devices = troupe::count_devices,
                                           .device_memory = troupe::device_memory,
                                           .pci_address = troupe::pci_address,
                                           .make_ops = troupe::make_cuda_ops,
                                           .join_ranks = troupe::join_cuda_ranks};
  return &library;
}
