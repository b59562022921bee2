#include "parallel/device/cuda/multiprocessors.hpp"

#include <cstddef>
#include <vector>

#include <cuda_runtime.h>

namespace troupe::cuda {
namespace {

std::vector<int> counts_of_devices() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) return {};
  std::vector<int> counts(static_cast<std::size_t>(devices), 1);
  for (int device = 0; device < devices; ++device) {
    cudaDeviceGetAttribute(&counts[static_cast<std::size_t>(device)],
                           cudaDevAttrMultiProcessorCount, device);
  }
  return counts;
}

}  // namespace

int multiprocessors() {
  static const std::vector<int> counts = counts_of_devices();
  int device = 0;
  cudaGetDevice(&device);
  return static_cast<std::size_t>(device) < counts.size() ? counts[static_cast<std::size_t>(device)]
                                                          : 1;
}

}  // namespace troupe::cuda
