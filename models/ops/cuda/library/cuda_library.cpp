#include "models/ops/device/cuda_library.hpp"

#include <cuda_runtime.h>

namespace troupe {
namespace {

int count_devices() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
}

}  // namespace
}  // namespace troupe

extern "C" __attribute__((visibility("default"))) const troupe::CudaLibrary* troupe_cuda_library() {
  static const troupe::CudaLibrary library{.interface = troupe::cuda_interface,
                                           .count_devices = troupe::count_devices,
                                           .make_ops = troupe::make_cuda_ops};
  return &library;
}
