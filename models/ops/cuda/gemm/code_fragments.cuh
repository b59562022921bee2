// Codes of a lane (coded_panels.hpp) as bf16 operands of the tensor cores.
#pragma once

#include <cstdint>

#include <cuda_fp16.h>

#include "models/ops/coded_panels.hpp"
#include "parallel/device/cuda/device_math.cuh"

namespace troupe::cuda {

/// What kernels need to know of CodedPanels.
struct CodeLayout {
  int units, unit_bytes, scales_at, zeros_at;
  int group_chunks;  ///< of 32 columns: 1, 2 or 4
  bool scales_in_units, has_zero_points;
  DType scale_dtype;
};

inline CodeLayout code_layout(const CodedPanels& panels) {
  const std::int32_t columns = panels.group_columns > 0 ? panels.group_columns : 128;
  return {.units = static_cast<int>(panels.units()),
          .unit_bytes = static_cast<int>(panels.unit_bytes()),
          .scales_at = static_cast<int>(panels.scales_at()),
          .zeros_at = static_cast<int>(panels.zeros_at()),
          .group_chunks = columns / 32,
          .scales_in_units = panels.group_columns > 0,
          .has_zero_points = panels.has_zero_points,
          .scale_dtype = panels.scale_dtype};
}

__device__ __forceinline__ std::uint32_t bits_of(__nv_bfloat162 pair) {
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
__device__ __forceinline__ __nv_bfloat162 pair_of(std::uint32_t bits) {
  return *reinterpret_cast<const __nv_bfloat162*>(&bits);
}

/// The scale of a row's group of a unit: `place` is group * 8 + row.
__device__ __forceinline__ float scale_at(const CodeLayout& layout, const unsigned char* unit,
                                          int place) {
  const unsigned char* const scales = unit + layout.scales_at;
  if (layout.scale_dtype == DType::f32) return reinterpret_cast<const float*>(scales)[place];
  const auto bits = reinterpret_cast<const std::uint16_t*>(scales)[place];
  if (layout.scale_dtype == DType::f16) return __half2float(__ushort_as_half(bits));
  return __uint_as_float(static_cast<std::uint32_t>(bits) << 16);
}

/// What is subtracted from a row's codes of a group, twice.
template <CodeKind kind>
__device__ __forceinline__ std::uint32_t offset_at(const CodeLayout& layout,
                                                   const unsigned char* unit, int place) {
  constexpr std::uint32_t without = kind == CodeKind::int4 ? 0x43084308U : 0U;  // 136
  if (!layout.has_zero_points) return without;
  const auto bits = reinterpret_cast<const std::uint16_t*>(unit + layout.zeros_at)[place];
  return bits * 0x10001U;
}

/// A lane's codes of a unit.
template <CodeKind kind>
struct LaneCodes {
  static constexpr int words = is_packed(kind) ? 4 : 8;
  std::uint32_t word[words];

  /// From a unit in shared or device memory.
  __device__ __forceinline__ void read(const unsigned char* unit) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < words / 4; ++i) {
      const uint4 four = *reinterpret_cast<const uint4*>(unit + 512 * i + 16 * lane);
      word[4 * i] = four.x, word[4 * i + 1] = four.y;
      word[4 * i + 2] = four.z, word[4 * i + 3] = four.w;
    }
  }

  /// Two columns of a step of 16 as bf16: the lower ones, or those 8 further. Exact.
  __device__ __forceinline__ std::uint32_t pair(int step, int high, std::uint32_t offset) const {
    if constexpr (kind == CodeKind::int4) {
      // 128 has an exponent with which the lowest bits of the fraction are whole.
      const std::uint32_t bits = word[step / 2] >> (4 * (step % 2 * 2 + high));
      return minus((bits & 0x000F000FU) | 0x43004300U, offset);
    } else if constexpr (kind == CodeKind::e2m1) {
      const std::uint32_t bits = word[step / 2] << (12 - 4 * (step % 2 * 2 + high));
      return times((bits & 0x80008000U) | (bits >> 6 & 0x01C001C0U), 0x7E807E80U);  // 2^126
    } else if constexpr (kind == CodeKind::e4m3) {
      const std::uint32_t bits = high ? word[step] : word[step] << 8;
      return times((bits & 0x80008000U) | (bits >> 4 & 0x07F007F0U), 0x7B807B80U);  // 2^120
    } else {
      // The sign's bit stands for -128: 128 + lower bits, less 128 or 256.
      const std::uint32_t bits = high ? word[step] >> 8 : word[step];
      const std::uint32_t number =
          minus((bits & 0x007F007FU) | 0x43004300U, (bits & 0x00800080U) | 0x43004300U);
      return minus(number, offset);
    }
  }

 private:
  static __device__ __forceinline__ std::uint32_t minus(std::uint32_t a, std::uint32_t b) {
    return bits_of(__hsub2(pair_of(a), pair_of(b)));
  }
  static __device__ __forceinline__ std::uint32_t times(std::uint32_t a, std::uint32_t b) {
    return bits_of(__hmul2(pair_of(a), pair_of(b)));
  }
};

/// Calls body with the kind as a constant.
template <class Body>
void with_kind(CodeKind kind, const Body& body) {
  switch (kind) {
    case CodeKind::int8:
      return body(std::integral_constant<CodeKind, CodeKind::int8>());
    case CodeKind::e4m3:
      return body(std::integral_constant<CodeKind, CodeKind::e4m3>());
    case CodeKind::int4:
      return body(std::integral_constant<CodeKind, CodeKind::int4>());
    case CodeKind::e2m1:
      return body(std::integral_constant<CodeKind, CodeKind::e2m1>());
  }
}

}  // namespace troupe::cuda
