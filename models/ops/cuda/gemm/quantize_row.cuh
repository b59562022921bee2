// A block that makes the codes of a row (quantize_rows.hpp).
#pragma once

#include <cuda_fp8.h>

#include "models/ops/cuda/common/vec8.cuh"
#include "models/ops/cuda/gemm/quantize_rows.hpp"
#include "models/ops/fp8_rows.hpp"
#include "parallel/device/cuda/device_math.cuh"

namespace troupe::cuda {

/// The largest value over all threads of the block, at most 1,024; every thread gets it. All must
/// call, once in a kernel.
__device__ __forceinline__ float block_max(float value) {
  __shared__ float parts[32];
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  value = warp_max(value);
  if (lane == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_max(lane < warps ? parts[lane] : 0.0F);
}

template <CodeKind kind>
__device__ __forceinline__ std::uint32_t codes_of(const float* four) {
  if constexpr (kind == CodeKind::int8) {
    // Sums with 1.5 * 2^23 have no fraction, and end in the byte.
    std::uint32_t bytes[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) bytes[i] = __float_as_uint(__fadd_rn(four[i], 0x1.8p23F));
    return __byte_perm(__byte_perm(bytes[0], bytes[1], 0x40), __byte_perm(bytes[2], bytes[3], 0x40),
                       0x5410);
  }
  const auto low = __nv_cvt_float2_to_fp8x2({four[0], four[1]}, __NV_SATFINITE, __NV_E4M3);
  const auto high = __nv_cvt_float2_to_fp8x2({four[2], four[3]}, __NV_SATFINITE, __NV_E4M3);
  return low | static_cast<std::uint32_t>(high) << 16;
}

/// The larger of `largest` and the magnitudes of values; infinity if one is not finite.
__device__ __forceinline__ float larger(float largest, const float (&values)[unit]) {
  // Magnitudes are ordered as their bits are, with NaN above infinity.
  unsigned bits = __float_as_uint(largest);
#pragma unroll
  for (const float value : values) bits = max(bits, __float_as_uint(fabsf(value)));
  return __uint_as_float(min(bits, __float_as_uint(INFINITY)));
}

/// The scale of a row (CodedRows), before it is NaN.
__device__ __forceinline__ float scale_of(float largest, CodeKind kind) {
  const float most = kind == CodeKind::int8 ? 127.0F : e4m3_max;
  return largest > 0.0F && isfinite(largest) ? fmaxf(largest / most, min_fp8_scale) : 1.0F;
}

/// `kind` is the same in all threads.
__device__ __forceinline__ void store_codes(std::uint8_t* to, const float (&values)[unit],
                                            float factor, CodeKind kind) {
  float scaled[unit];
#pragma unroll
  for (int i = 0; i < unit; ++i) scaled[i] = __fmul_rn(values[i], factor);
  *reinterpret_cast<uint2*>(to) =
      kind == CodeKind::int8
          ? uint2{codes_of<CodeKind::int8>(scaled), codes_of<CodeKind::int8>(scaled + 4)}
          : uint2{codes_of<CodeKind::e4m3>(scaled), codes_of<CodeKind::e4m3>(scaled + 4)};
}

/// Raises a peak, at least 0, to `largest`, which is the same for numbers and for their bits. Most
/// rows raise nothing.
__device__ __forceinline__ void raise(float* peak, float largest) {
  if (peak == nullptr || largest <= *static_cast<volatile float*>(peak)) return;
  atomicMax(reinterpret_cast<int*>(peak), __float_as_int(largest));
}

/// How row blockIdx.x becomes codes.
struct CodedRow {
  float largest;  ///< magnitude of the row; infinite or NaN if one of its numbers is
  float scale, factor;

  __device__ __forceinline__ CodedRow(float largest_of_row, const CodedRows& to)
      : largest(largest_of_row), scale(scale_of(largest, to.kind)), factor(1.0F / scale) {}

  /// Writes the scale, and raises the peak. All threads call.
  __device__ __forceinline__ void store_scale(const CodedRows& to) const {
    if (threadIdx.x > 0) return;
    to.scales[blockIdx.x] = isfinite(largest) ? scale : NAN;
    raise(to.peak, isfinite(largest) ? largest : INFINITY);
  }
};

/// Makes the codes of row blockIdx.x, of k columns, whose units read(column, values) gives, and
/// calls write(column, values) for each. A thread keeps the units that it reads, at most `units`;
/// with 0 it reads them twice. All threads call.
template <int units, class Read, class Write>
__device__ __forceinline__ void quantize_row(int k, const CodedRows& to, const Read& read,
                                             const Write& write) {
  constexpr int kept = units > 0 ? units : 1;
  const int first = static_cast<int>(threadIdx.x) * unit;
  const int stride = static_cast<int>(blockDim.x) * unit;
  float values[kept][unit] = {};
  float largest = 0.0F;
  if constexpr (units > 0) {
#pragma unroll
    for (int i = 0; i < units; ++i) {
      if (first + i * stride < k) read(first + i * stride, values[i]);
      largest = larger(largest, values[i]);
    }
  } else {
    for (int at = first; at < k; at += stride) {
      read(at, values[0]);
      largest = larger(largest, values[0]);
    }
  }
  const CodedRow row(block_max(largest), to);
  std::uint8_t* const codes = to.codes + std::int64_t{blockIdx.x} * k;
  if constexpr (units > 0) {
#pragma unroll
    for (int i = 0; i < units; ++i) {
      if (first + i * stride >= k) continue;
      store_codes(codes + first + i * stride, values[i], row.factor, to.kind);
      write(first + i * stride, values[i]);
    }
  } else {
    for (int at = first; at < k; at += stride) {
      read(at, values[0]);
      store_codes(codes + at, values[0], row.factor, to.kind);
      write(at, values[0]);
    }
  }
  row.store_scale(to);
}
template <int units, class Read>
__device__ __forceinline__ void quantize_row(int k, const CodedRows& to, const Read& read) {
  quantize_row<units>(k, to, read, [](int, const float(&)[unit]) {});
}

}  // namespace troupe::cuda
