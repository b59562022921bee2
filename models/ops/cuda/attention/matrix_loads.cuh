// Matrices of shared memory as operands of tensor cores.
#pragma once

#include <cstdint>

namespace troupe::cuda {

/// Loads four matrices of 8 x 8 elements of 16 bits: lane 8 m + r passes the address of row r of
/// matrix m, and gets two adjacent elements in row lane / 4 of each, or, if `transposed`, in column
/// lane / 4.
template <bool transposed>
__device__ __forceinline__ void load_matrices(std::uint32_t (&to)[4], std::uint32_t from) {
  if constexpr (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
  }
}

}  // namespace troupe::cuda
