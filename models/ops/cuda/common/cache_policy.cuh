// Copies to shared memory that say how long the second-level cache keeps what they read: weights
// that a pass reads once leave first, so that activations stay.
#pragma once

#include <cstdint>

#include "models/ops/cuda/common/ptx_sm90.cuh"

namespace troupe::cuda {

/// Makes a cache policy (PTX createpolicy): lines leave the cache before others, or as usual. Call
/// it outside of loops: one at each copy cost W4A16's products 1.7 us a layer.
__device__ __forceinline__ std::uint64_t make_cache_policy(bool evict_first) {
  std::uint64_t policy = 0;
  if (evict_first) {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  } else {
    asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  }
  return policy;
}

/// copy_bulk with a policy.
__device__ __forceinline__ void copy_bulk(std::uint32_t to, const void* from, std::uint32_t bytes,
                                          std::uint32_t barrier, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}
/// copy_box with a policy.
__device__ __forceinline__ void copy_box(std::uint32_t to, const CUtensorMap* map, int c0, int c1,
                                         int c2, int c3, int c4, std::uint32_t barrier,
                                         std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(to),
      "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "r"(barrier), "l"(policy)
      : "memory");
}
/// copy_box_to_blocks with a policy.
__device__ __forceinline__ void copy_box_to_blocks(std::uint32_t to, const CUtensorMap* map, int c0,
                                                   int c1, int c2, int c3, int c4,
                                                   std::uint32_t barrier, std::uint16_t blocks,
                                                   std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8, %9;" ::"r"(
          to),
      "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "r"(barrier), "h"(blocks), "l"(policy)
      : "memory");
}

}  // namespace troupe::cuda
