// Kernels that start while the one before them in the stream ends: what they do before
// wait_for_kernels_before, and their own start, cost no time of their own.
#pragma once

#include <cuda_runtime.h>

namespace troupe::cuda {

/// Waits until the kernels before this one are done and what they wrote is seen. A thread that
/// launch_early starts touches what those may still write or read only behind it, its own call or
/// another's that it has waited for. Some thread of each such kernel calls it: what follows counts
/// on this kernel to end after those before it.
__device__ __forceinline__ void wait_for_kernels_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// Lets the next kernel start, if it is launched to do so early, as soon as all blocks of this one
/// have called this, any thread, or ended.
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/// Both, for a kernel that has nothing to do before.
__device__ __forceinline__ void begin_early_kernel() {
  let_next_kernel_start();
  wait_for_kernels_before();
}

/// How a kernel is launched.
struct Grid {
  dim3 blocks;
  unsigned threads = 1;
  std::size_t shared_bytes = 0;
};

/// Launches a kernel that may start before the one before it has ended; its blocks are clusters of
/// this many.
template <class... Parameters, class... Arguments>
cudaError_t launch_early_as(dim3 cluster, void (*kernel)(Parameters...), const Grid& grid,
                            cudaStream_t stream, const Arguments&... arguments) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {cluster.x, cluster.y, cluster.z};
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = dim3(grid.threads);
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = cluster.x * cluster.y * cluster.z > 1 ? 2 : 1;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

/// Launches a kernel that may start before the one before it has ended.
template <class... Parameters, class... Arguments>
cudaError_t launch_early(void (*kernel)(Parameters...), const Grid& grid, cudaStream_t stream,
                         const Arguments&... arguments) {
  return launch_early_as(dim3(1), kernel, grid, stream, arguments...);
}

/// The same of one cluster of blocks.
template <class... Parameters, class... Arguments>
cudaError_t launch_cluster_early(void (*kernel)(Parameters...), const Grid& grid,
                                 cudaStream_t stream, const Arguments&... arguments) {
  return launch_early_as(grid.blocks, kernel, grid, stream, arguments...);
}

}  // namespace troupe::cuda
