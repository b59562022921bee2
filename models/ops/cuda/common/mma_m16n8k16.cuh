// Tensor core GEMMs of few rows: weights go directly from memory to registers.
#pragma once

#include <cstdint>

#include "parallel/device/cuda/device_math.cuh"

namespace troupe::cuda {

/// d += a . b of 16 rows and 8 columns over 16 of k (mma m16n8k16). Lane l holds rows l / 4 and l /
/// 4 + 8 of a at four of k, two in `low` and two in `high`; of b column l / 4 at the same four; in
/// d[2 h + i] row l / 4 + 8 h, column 2 (l % 4) + i. The caller chooses which four of k these are,
/// the same for a and b.
__device__ __forceinline__ void mma(float (&d)[4], std::uint32_t top_low, std::uint32_t bottom_low,
                                    std::uint32_t top_high, std::uint32_t bottom_high,
                                    std::uint32_t low, std::uint32_t high) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(top_low), "r"(bottom_low), "r"(top_high), "r"(bottom_high), "r"(low), "r"(high));
}

/// The same of halves (fp16).
__device__ __forceinline__ void mma_f16(float (&d)[4], std::uint32_t top_low,
                                        std::uint32_t bottom_low, std::uint32_t top_high,
                                        std::uint32_t bottom_high, std::uint32_t low,
                                        std::uint32_t high) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(top_low), "r"(bottom_low), "r"(top_high), "r"(bottom_high), "r"(low), "r"(high));
}

/// Loads 16 bytes that are not read again.
__device__ __forceinline__ uint4 load_once(const bf16* from) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}

/// Prefetches `bytes`, a multiple of 16 at such an address, to the second-level cache.
__device__ __forceinline__ void prefetch(const void* from, std::int64_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from),
               "r"(static_cast<std::uint32_t>(bytes))
               : "memory");
#endif
}

constexpr int chunk = 32;  // columns of k, for two instructions

/// A thread's parts of 16 rows of a matrix, `chunks` chunks of k.
template <int chunks>
struct FewWeights {
  uint4 top[chunks], bottom[chunks];

  __device__ __forceinline__ void read(const bf16* upper, const bf16* lower, int at, int k) {
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
      const bool there = at + i * chunk < k;
      top[i] = there ? load_once(upper + at + i * chunk) : uint4{};
      bottom[i] = there ? load_once(lower + at + i * chunk) : uint4{};
    }
  }
  /// Multiplies with `row` of x, or with zeros if it is null.
  __device__ __forceinline__ void multiply(const bf16* row, int at, int k, float (&sums)[4]) const {
    uint4 x[chunks];
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
      const bool there = at + i * chunk < k && row != nullptr;
      x[i] = there ? *reinterpret_cast<const uint4*>(row + at + i * chunk) : uint4{};
    }
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
      mma(sums, top[i].x, bottom[i].x, top[i].y, bottom[i].y, x[i].x, x[i].y);
      mma(sums, top[i].z, bottom[i].z, top[i].w, bottom[i].w, x[i].z, x[i].w);
    }
  }
};

}  // namespace troupe::cuda
