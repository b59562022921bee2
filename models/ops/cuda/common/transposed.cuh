#pragma once

#include <cstdint>

#include "parallel/device/cuda/device_math.cuh"

namespace troupe::cuda {

/// Transposes an 8 x 8 matrix of bf16, of which a lane has two adjacent elements of row lane / 4.
__device__ __forceinline__ std::uint32_t transposed(float left, float right) {
  std::uint32_t value = round_pair(left, right);
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(value));
  return value;
}

}  // namespace troupe::cuda
