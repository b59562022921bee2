// Programmatic dependent launch: kernels that start while the previous one in the stream ends.
// Their start, and what they do before wait_for_kernels_before, cost no time of their own.
#pragma once

#include <cuda_runtime.h>

namespace troupe::cuda {

/// Waits until the earlier kernels are done and their writes are visible. A thread of an early
/// kernel may touch memory that those still write or read only after this call, its own or one by
/// another thread that it has synchronised with. Some thread of each such kernel must call it:
/// later kernels rely on this kernel ending after the earlier ones.
__device__ __forceinline__ void wait_for_kernels_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// Lets the next kernel, if launched early, start as soon as any thread of each block of this one
/// has called this or the block has ended.
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/// Both, for a kernel that has no work before them.
__device__ __forceinline__ void begin_early_kernel() {
  let_next_kernel_start();
  wait_for_kernels_before();
}

/// The launch dimensions of a kernel.
struct Grid {
  dim3 blocks;
  unsigned threads = 1;
  std::size_t shared_bytes = 0;
};

/// Launches a kernel that may start before the previous one has ended, in clusters of `cluster`
/// blocks.
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

/// Launches a kernel that may start before the previous one has ended.
template <class... Parameters, class... Arguments>
cudaError_t launch_early(void (*kernel)(Parameters...), const Grid& grid, cudaStream_t stream,
                         const Arguments&... arguments) {
  return launch_early_as(dim3(1), kernel, grid, stream, arguments...);
}

/// The same as one cluster of blocks.
template <class... Parameters, class... Arguments>
cudaError_t launch_cluster_early(void (*kernel)(Parameters...), const Grid& grid,
                                 cudaStream_t stream, const Arguments&... arguments) {
  return launch_early_as(grid.blocks, kernel, grid, stream, arguments...);
}

}  // namespace troupe::cuda
