#include <cuda_fp8.h>

#include "models/ops/cuda/common/vec8.cuh"
#include "models/ops/cuda/gemm/quantize_rows.hpp"
#include "models/ops/fp8_rows.hpp"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr int max_threads = 1024;

/// The largest value over all threads of the block; every thread gets it. All must call.
__device__ __forceinline__ float block_max(float value) {
  __shared__ float parts[max_threads / 32];
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  value = warp_max(value);
  if (lane == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_max(lane < warps ? parts[lane] : 0.0F);
}

__device__ __forceinline__ std::uint32_t codes_of(const float* four) {
  const auto low = __nv_cvt_float2_to_fp8x2({four[0], four[1]}, __NV_SATFINITE, __NV_E4M3);
  const auto high = __nv_cvt_float2_to_fp8x2({four[2], four[3]}, __NV_SATFINITE, __NV_E4M3);
  return low | static_cast<std::uint32_t>(high) << 16;
}

/// Grid: rows. A thread keeps the units of its row that it reads, at most `units`; with 0 it reads
/// them twice.
template <int units>
__global__ void quantize_rows(const bf16* x, int k, std::uint8_t* codes, float* scales) {
  begin_early_kernel();
  const bf16* const row = x + std::int64_t{blockIdx.x} * k;
  std::uint8_t* const to = codes + std::int64_t{blockIdx.x} * k;
  constexpr int kept = units > 0 ? units : 1;
  const int stride = static_cast<int>(blockDim.x) * unit;
  float values[kept][unit] = {};
  float largest = 0.0F;
  bool finite = true;
  const auto look_at = [&](const float(&eight)[unit]) {
#pragma unroll
    for (const float value : eight) {
      largest = fmaxf(largest, fabsf(value));
      finite = finite && isfinite(value);
    }
  };
  const int first = static_cast<int>(threadIdx.x) * unit;
  if constexpr (units > 0) {
#pragma unroll
    for (int i = 0; i < units; ++i) {
      if (first + i * stride < k) load_unit(row + first + i * stride, values[i]);
      look_at(values[i]);
    }
  } else {
    for (int at = first; at < k; at += stride) {
      load_unit(row + at, values[0]);
      look_at(values[0]);
    }
  }
  largest = block_max(finite ? largest : INFINITY);
  const bool is_usable = largest > 0.0F && isfinite(largest);
  // As fp8_row_scale.
  const float scale = is_usable ? fmaxf(largest / e4m3_max, 1e-30F) : 1.0F;
  const float factor = 1.0F / scale;
  const auto write = [&](const float(&eight)[unit], int at) {
    float scaled[unit];
#pragma unroll
    for (int i = 0; i < unit; ++i) scaled[i] = eight[i] * factor;
    *reinterpret_cast<uint2*>(to + at) = {codes_of(scaled), codes_of(scaled + 4)};
  };
  if constexpr (units > 0) {
#pragma unroll
    for (int i = 0; i < units; ++i) {
      if (first + i * stride < k) write(values[i], first + i * stride);
    }
  } else {
    for (int at = first; at < k; at += stride) {
      load_unit(row + at, values[0]);
      write(values[0], at);
    }
  }
  if (threadIdx.x == 0) scales[blockIdx.x] = isfinite(largest) ? scale : NAN;
}

}  // namespace
}  // namespace cuda

using namespace cuda;

cudaError_t launch_quantize_rows(const QuantizeRows& rows, cudaStream_t stream) {
  if (rows.rows == 0) return cudaSuccess;
  const auto run = [&](auto* kernel, unsigned threads) {
    return launch_early(kernel, {dim3(static_cast<unsigned>(rows.rows)), threads}, stream,
                        static_cast<const bf16*>(rows.x), static_cast<int>(rows.k), rows.codes,
                        rows.scales);
  };
  const auto threads_for = [&](int units) { return 32 * blocks_of(rows.k, 32 * unit * units); };
  if (rows.k <= max_threads / 2 * unit) return run(quantize_rows<1>, threads_for(1));
  if (rows.k <= max_threads * 2 * unit) return run(quantize_rows<2>, threads_for(2));
  if (rows.k <= max_threads * 4 * unit) return run(quantize_rows<4>, threads_for(4));
  return run(quantize_rows<0>, max_threads);
}

}  // namespace troupe
