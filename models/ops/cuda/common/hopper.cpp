#include "models/ops/cuda/common/hopper.hpp"

#include <cstddef>
#include <vector>

#include <cuda_runtime.h>

#include "models/ops/cuda/device_code.hpp"

namespace troupe {
namespace {

bool is_hopper(int device) {
  int major = 0, minor = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
         major == 9 && minor == 0;
}

std::vector<bool> hopper_devices() {
  int count = 0;
  if (!has_hopper_kernels(TROUPE_CUDA_CODE) || cudaGetDeviceCount(&count) != cudaSuccess) return {};
  std::vector<bool> found(static_cast<std::size_t>(count));
  for (int device = 0; device < count; ++device) {
    found[static_cast<std::size_t>(device)] = is_hopper(device);
  }
  return found;
}

}  // namespace

bool hopper_kernels_run() {
  static const std::vector<bool> devices = hopper_devices();
  int device = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         static_cast<std::size_t>(device) < devices.size() &&
         devices[static_cast<std::size_t>(device)];
}

}  // namespace troupe
