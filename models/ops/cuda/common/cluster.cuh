// Blocks of a cluster, which read each other's shared memory. GPUs before Hopper have clusters of
// one block.
#pragma once

namespace troupe::cuda {

/// Called by all threads: makes their writes visible to threads that wait for the cluster.
__device__ __forceinline__ void arrive_in_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
/// Waits until all threads of the cluster have arrived.
__device__ __forceinline__ void wait_for_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  __syncthreads();
#endif
}
__device__ __forceinline__ void meet_in_cluster() {
  arrive_in_cluster();
  wait_for_cluster();
}

/// The index of this block in its cluster.
__device__ __forceinline__ int block_of_cluster() {
#if __CUDA_ARCH__ >= 900
  int block;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
  return block;
#else
  return 0;
#endif
}

/// The address that `own`, in shared memory, has in another block of the cluster, which must have
/// begun.
template <class T>
__device__ __forceinline__ T* in_block(T* own, int block) {
#if __CUDA_ARCH__ >= 900
  T* place;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(place) : "l"(own), "r"(block));
  return place;
#else
  return own;
#endif
}

}  // namespace troupe::cuda
