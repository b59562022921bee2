#include <algorithm>

#include "models/ops/cuda/common/silu.cuh"
#include "models/ops/cuda/gemm/quantize_row.cuh"
#include "models/ops/cuda/gemm/quantize_rows.hpp"
#include "parallel/device/cuda/launch.cuh"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace cuda {
namespace {

constexpr int max_threads = 1024;

/// Grid: rows.
template <int units>
__global__ void quantize_rows(const bf16* x, int k, CodedRows to) {
  begin_early_kernel();
  const bf16* const row = x + std::int64_t{blockIdx.x} * k;
  quantize_row<units>(k, to, [&](int at, float(&values)[unit]) { load_unit(row + at, values); });
}

/// Grid: rows.
template <int units>
__global__ void silu_mul_coded(const bf16* gate_up, int k, bf16* out, CodedRows to) {
  begin_early_kernel();
  const bf16* const gates = gate_up + std::int64_t{blockIdx.x} * 2 * k;
  bf16* const row = out == nullptr ? nullptr : out + std::int64_t{blockIdx.x} * k;
  // Nothing is written before all is read: loads do not wait for each other.
  const auto read = [&](int at, float(&values)[unit]) {
    float ups[unit];
    load_unit(gates + at, values);
    load_unit(gates + k + at, ups);
#pragma unroll
    for (int i = 0; i < unit; ++i) {
      values[i] = __bfloat162float(__float2bfloat16_rn(fast_silu(values[i]) * ups[i]));
    }
  };
  quantize_row<units>(k, to, read, [&](int at, const float(&values)[unit]) {
    if (row != nullptr) store_unit(row + at, values);
  });
}

constexpr int warp_columns = 32 * unit;
constexpr int counted_threads = 256;

/// A warp takes every row that is as many further as there are warps. It keeps its units of a row,
/// at most `units` a lane; with 0 it reads them twice.
template <int units>
__global__ void __launch_bounds__(counted_threads)
    quantize_counted_rows(const bf16* x, const std::int32_t* count, int k, CodedRows to) {
  begin_early_kernel();
  const int rows = *count, lane = threadIdx.x % 32;
  const int warps = static_cast<int>(gridDim.x * blockDim.x / 32);
  const int first = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / 32);
  for (int row = first; row < rows; row += warps) {
    const bf16* const from = x + std::int64_t{row} * k + lane * unit;
    std::uint8_t* const codes = to.codes + std::int64_t{row} * k + lane * unit;
    const int left = k - lane * unit;
    float values[units > 0 ? units : 1][unit] = {};
    float largest = 0.0F;
    if constexpr (units > 0) {
#pragma unroll
      for (int i = 0; i < units; ++i) {
        if (i * warp_columns < left) load_unit(from + i * warp_columns, values[i]);
      }
#pragma unroll
      for (int i = 0; i < units; ++i) largest = larger(largest, values[i]);
    } else {
      for (int at = 0; at < left; at += warp_columns) {
        load_unit(from + at, values[0]);
        largest = larger(largest, values[0]);
      }
    }
    largest = warp_max(largest);
    const float scale = scale_of(largest, to.kind), factor = 1.0F / scale;
    if constexpr (units > 0) {
#pragma unroll
      for (int i = 0; i < units; ++i) {
        if (i * warp_columns < left)
          store_codes(codes + i * warp_columns, values[i], factor, to.kind);
      }
    } else {
      for (int at = 0; at < left; at += warp_columns) {
        load_unit(from + at, values[0]);
        store_codes(codes + at, values[0], factor, to.kind);
      }
    }
    if (lane == 0) {
      to.scales[row] = isfinite(largest) ? scale : NAN;
      raise(to.peak, largest);
    }
  }
}

/// Grid: rows.
__global__ void quantize_scaled_rows(const bf16* x, int k, CodedRows to) {
  const std::int64_t row = std::int64_t{blockIdx.x} * k;
  const float factor = 1.0F / to.scales[blockIdx.x];
  for (int at = static_cast<int>(threadIdx.x) * unit; at < k;
       at += static_cast<int>(blockDim.x) * unit) {
    float values[unit];
    load_unit(x + row + at, values);
    store_codes(to.codes + row + at, values, factor, to.kind);
  }
}

/// Calls run(kernel, threads) with the instance that keeps a row of k in registers, if one does.
/// Fewer threads with more units each leave a multiprocessor room for more rows at once.
template <class Run>
cudaError_t with_units(std::int64_t k, auto one, auto two, auto four, auto any, const Run& run) {
  const auto threads_for = [&](int units) { return 32 * blocks_of(k, 32 * unit * units); };
  if (k <= max_threads / 8 * unit) return run(one, threads_for(1));
  if (k <= max_threads * unit) return run(two, threads_for(2));
  if (k <= max_threads * 4 * unit) return run(four, threads_for(4));
  return run(any, max_threads);
}

}  // namespace
}  // namespace cuda

using namespace cuda;

cudaError_t launch_quantize_rows(const void* x, std::int64_t rows, std::int64_t k,
                                 const CodedRows& to, cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  return with_units(k, quantize_rows<1>, quantize_rows<2>, quantize_rows<4>, quantize_rows<0>,
                    [&](auto* kernel, unsigned threads) {
                      return launch_early(kernel, {dim3(static_cast<unsigned>(rows)), threads},
                                          stream, static_cast<const bf16*>(x), static_cast<int>(k),
                                          to);
                    });
}

cudaError_t launch_quantize_counted_rows(const void* x, const std::int32_t* count,
                                         std::int64_t rows, std::int64_t k, const CodedRows& to,
                                         cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  constexpr int blocks_at_once = 8;  // of a multiprocessor
  const unsigned blocks = std::min(blocks_of(rows, counted_threads / 32),
                                   static_cast<unsigned>(blocks_at_once * multiprocessors()));
  auto* const kernel = k <= 4 * warp_columns   ? quantize_counted_rows<4>
                       : k <= 8 * warp_columns ? quantize_counted_rows<8>
                                               : quantize_counted_rows<0>;
  return launch_early(kernel, {dim3(blocks), counted_threads}, stream, static_cast<const bf16*>(x),
                      count, static_cast<int>(k), to);
}

cudaError_t launch_quantize_scaled_rows(const void* x, std::int64_t rows, std::int64_t k,
                                        const CodedRows& to, cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  quantize_scaled_rows<<<static_cast<unsigned>(rows), 256, 0, stream>>>(static_cast<const bf16*>(x),
                                                                        static_cast<int>(k), to);
  return cudaPeekAtLastError();
}

cudaError_t launch_silu_mul_coded(const void* gate_up, std::int64_t rows, std::int64_t k, void* out,
                                  const CodedRows& to, cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  return with_units(k, silu_mul_coded<1>, silu_mul_coded<2>, silu_mul_coded<4>, silu_mul_coded<0>,
                    [&](auto* kernel, unsigned threads) {
                      return launch_early(kernel, {dim3(static_cast<unsigned>(rows)), threads},
                                          stream, static_cast<const bf16*>(gate_up),
                                          static_cast<int>(k), static_cast<bf16*>(out), to);
                    });
}

}  // namespace troupe
