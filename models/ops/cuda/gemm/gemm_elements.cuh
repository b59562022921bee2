// What the elements of weights and rows are to GEMMs on Hopper's tensor cores.
#pragma once

#include <cstdint>

#include "models/ops/cuda/common/ptx_sm90.cuh"
#include "models/ops/weight_format.hpp"

namespace troupe::cuda {

struct Bf16 {
  using Sum = float;
  using Quad = float4;  ///< four sums
  static constexpr int bytes = 2;
  static constexpr bool has_scales = false;
  /// Steps of 128 bytes of k after which sums are added to those in fp32; 0: they are exact enough.
  static constexpr int steps_per_sum = 0;
  template <int count>
  __device__ static void multiply(std::uint64_t left, std::uint64_t right, int adds,
                                  float (&sums)[count]) {
    wgmma(left, right, adds, sums);
  }
};

/// Codes with a scale for each row of weights and of x.
struct E4m3 {
  using Sum = float;
  using Quad = float4;
  static constexpr CodeKind kind = CodeKind::e4m3;
  static constexpr int bytes = 1;
  static constexpr bool has_scales = true;
  static constexpr int steps_per_sum = 4;
  template <int count>
  __device__ static void multiply(std::uint64_t left, std::uint64_t right, int adds,
                                  float (&sums)[count]) {
    wgmma_e4m3(left, right, adds, sums);
  }
};

/// Likewise, signed bytes.
struct Int8 {
  using Sum = int;
  using Quad = int4;
  static constexpr CodeKind kind = CodeKind::int8;
  static constexpr int bytes = 1;
  static constexpr bool has_scales = true;
  static constexpr int steps_per_sum = 0;
  template <int count>
  __device__ static void multiply(std::uint64_t left, std::uint64_t right, int adds,
                                  int (&sums)[count]) {
    wgmma_s8(left, right, adds, sums);
  }
};

}  // namespace troupe::cuda
