#include <cstdint>

#include "models/ops/cuda/common/small_copy.hpp"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr std::size_t max_bytes = 512 << 10;
constexpr int threads = 256;

/// A thread per unit of 16 bytes; one more copies the remaining bytes. `there`: earlier kernels do
/// not write the source. Does not let the next kernel start early: some kernels read plans and
/// tables before they wait.
__global__ void __launch_bounds__(threads)
    copy_units(uint4* to, const uint4* from, unsigned bytes, bool there) {
  const unsigned unit = blockIdx.x * threads + threadIdx.x, units = bytes / sizeof(uint4);
  uint4 value{};
  if (there && unit < units) value = from[unit];
  wait_for_kernels_before();
  if (!there && unit < units) value = from[unit];
  if (unit < units) to[unit] = value;
  if (unit == units) {
    for (unsigned i = units * sizeof(uint4); i < bytes; ++i) {
      reinterpret_cast<char*>(to)[i] = reinterpret_cast<const char*>(from)[i];
    }
  }
  __threadfence();
}

bool is_page_locked(const void* host) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, host) != cudaSuccess) {
    cudaGetLastError();  // the copy reports the error
    return false;
  }
  return attributes.type == cudaMemoryTypeHost;
}

bool is_aligned(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % sizeof(uint4) == 0;
}

}  // namespace
}  // namespace cuda

using namespace cuda;

cudaError_t copy_small(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                       cudaStream_t stream) {
  const void* const host = kind == cudaMemcpyHostToDevice ? from : to;
  if (bytes > max_bytes || !is_aligned(to) || !is_aligned(from) || !is_page_locked(host)) {
    return cudaMemcpyAsync(to, from, bytes, kind, stream);
  }
  const auto blocks = static_cast<unsigned>(bytes / sizeof(uint4) / threads + 1);
  return launch_early(copy_units, {dim3(blocks), threads}, stream, static_cast<uint4*>(to),
                      static_cast<const uint4*>(from), static_cast<unsigned>(bytes),
                      kind == cudaMemcpyHostToDevice);
}

}  // namespace troupe
