// GEMMs with one order of addition for all numbers of rows. A block computes a part of k of a tile
// of columns by rows; weights are the left matrix of the instructions, so that few rows waste
// little.
#include <algorithm>

#include "models/ops/cuda/common/cluster.cuh"
#include "models/ops/cuda/common/hopper.hpp"
#include "models/ops/cuda/common/ptx_sm90.cuh"
#include "models/ops/cuda/gemm/invariant_gemm_kernel.hpp"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr int tile_k = 64;      // 128 bytes, the swizzle's row length
constexpr int row_bytes = 128;  // of a tile in shared memory
constexpr int units = 8;        // of 16 bytes in such a row
constexpr int unit_elements = 8;
constexpr int alignment = 1024;  // of a tile, for the swizzle

/// `groups` of four warps with 64 columns each multiply `rows` rows; `stages` of tile_k of k are in
/// shared memory, and finally the tile's sums, row by row.
template <int groups_, int rows_, int stages_>
struct Tiling {
  static constexpr int groups = groups_, rows = rows_, stages = stages_;
  static constexpr int threads = groups * 128;
  static constexpr int columns = groups * 64;
  static constexpr int left_bytes = columns * row_bytes;
  static constexpr int stage_bytes = left_bytes + rows * row_bytes;
  static constexpr int pitch = columns + 4;  // of a row of sums, so that no two lanes share a bank
  static constexpr int shared_bytes =
      alignment + std::max(stages * stage_bytes, rows* pitch* static_cast<int>(sizeof(float)));
  static constexpr int rows_at_once = threads / units;  // rows of which all threads copy one unit
                                                        // each
};

struct Gemm {
  const bf16* weight;
  const bf16* x;
  int rows, n, k, segment_k;
};

/// One thread's copies of a tile: a unit of every rows_at_once-th row.
template <class T>
class Copies {
 public:
  __device__ Copies(const Gemm& gemm, std::uint32_t stages_at, int segment, int column, int row)
      : gemm_(gemm),
        in_row_(threadIdx.x % units * unit_elements),
        own_(threadIdx.x / units),
        to_(stages_at + own_ * row_bytes + ((threadIdx.x % units) ^ (own_ % units)) * 16) {
    const std::int64_t at = std::int64_t{segment} * gemm.segment_k + in_row_;
    weight_ = gemm.weight + std::int64_t{column + own_} * gemm.k + at;
    x_ = gemm.x + std::int64_t{row + own_} * gemm.k + at;
    columns_left_ = gemm.n - column - own_;
    rows_left_ = gemm.rows - row - own_;
  }

  /// Copies the weights of k [step * tile_k, + tile_k) to a stage.
  __device__ void copy_weights(int step, int stage) const {
    const bool in_k = step * tile_k + in_row_ < gemm_.segment_k;
#pragma unroll
    for (int i = 0; i < T::columns / T::rows_at_once; ++i) {
      constexpr int each = T::rows_at_once;
      const bool there = in_k && i * each < columns_left_;
      const bf16* const from = weight_ + std::int64_t{i * each} * gemm_.k + step * tile_k;
      copy_async(to_ + stage * T::stage_bytes + i * each * row_bytes, there ? from : gemm_.weight,
                 there);
    }
  }
  /// The same for the rows.
  __device__ void copy_rows(int step, int stage) const {
    const bool in_k = step * tile_k + in_row_ < gemm_.segment_k;
#pragma unroll
    for (int i = 0; i < (T::rows + T::rows_at_once - 1) / T::rows_at_once; ++i) {
      constexpr int each = T::rows_at_once;
      if (T::rows % each != 0 && own_ + i * each >= T::rows) break;
      const bool there = in_k && i * each < rows_left_;
      const bf16* const from = x_ + std::int64_t{i * each} * gemm_.k + step * tile_k;
      copy_async(to_ + stage * T::stage_bytes + T::left_bytes + i * each * row_bytes,
                 there ? from : gemm_.x, there);
    }
  }

 private:
  const Gemm& gemm_;
  int in_row_, own_;
  std::uint32_t to_;
  const bf16* weight_;
  const bf16* x_;
  int columns_left_, rows_left_;
};

__device__ __forceinline__ float4 sum_of(float4 a, float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

/// The tree sum of part(0), part(1), ...
template <class Part>
__device__ __forceinline__ float4 tree_of(int segments, const Part& part) {
  if (segments == 1) return part(0);
  const float4 first = sum_of(part(0), part(1));
  return segments == 2 ? first : sum_of(first, sum_of(part(2), part(3)));
}

__device__ __forceinline__ void store_four(float* to, float4 value) {
  *reinterpret_cast<float4*>(to) = value;
}
__device__ __forceinline__ void store_four(bf16* to, float4 value) {
  auto* const pairs = reinterpret_cast<__nv_bfloat162*>(to);
  pairs[0] = __floats2bfloat162_rn(value.x, value.y);
  pairs[1] = __floats2bfloat162_rn(value.z, value.w);
}

/// Grid: segments, which form a cluster; tiles of rows; tiles of columns.
template <class T, class Out>
__global__ void __launch_bounds__(T::threads) multiply_tile(const Gemm gemm, Out* out) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  let_next_kernel_start();
  extern __shared__ unsigned char shared[];
  const std::uint32_t begin = shared_address(shared);
  const std::uint32_t stages_at = (begin + alignment - 1) / alignment * alignment;
  const int segment = blockIdx.x, row = blockIdx.y * T::rows, column = blockIdx.z * T::columns;
  const int steps = (gemm.segment_k + tile_k - 1) / tile_k;
  const Copies<T> copies(gemm, stages_at, segment, column, row);
  constexpr int ahead = T::stages - 2;
  for (int step = 0; step < ahead && step < steps; ++step) copies.copy_weights(step, step);
  wait_for_kernels_before();
#pragma unroll
  for (int step = 0; step < ahead; ++step) {
    if (step < steps) copies.copy_rows(step, step);
    close_copies();
  }
  const int warp = __shfl_sync(~0U, threadIdx.x / 32, 0), group = warp / 4;
  float sums[T::rows / 2];
#pragma unroll
  for (float& sum : sums) sum = 0.0F;
  int stage = 0, next_stage = ahead;
  for (int step = 0; step < steps; ++step) {
    wait_for_copies<T::stages - 3>();
    show_to_products();
    __syncthreads();
    const std::uint32_t at = stages_at + stage * T::stage_bytes;
    const std::uint64_t left = tile_descriptor(at + group * 64 * row_bytes);
    const std::uint64_t right = tile_descriptor(at + T::left_bytes);
    pin(sums);
    open_products();
#pragma unroll
    for (int i = 0; i < tile_k / 16; ++i) wgmma(left + 2 * i, right + 2 * i, 1, sums);
    close_products();
    // The stage of two steps before: its wgmma have ended.
    if (step + ahead < steps) {
      copies.copy_weights(step + ahead, next_stage);
      copies.copy_rows(step + ahead, next_stage);
    }
    close_copies();
    wait_for_products<1>();
    stage = stage + 1 == T::stages ? 0 : stage + 1;
    next_stage = next_stage + 1 == T::stages ? 0 : next_stage + 1;
  }
  wait_for_products<0>();
  pin(sums);
  wait_for_copies<0>();
  __syncthreads();

  auto* const staged = reinterpret_cast<float*>(shared + (stages_at - begin));
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < T::rows / 8; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        staged[(8 * j + lane % 4 * 2 + i) * T::pitch + warp * 16 + lane / 4 + 8 * h] =
            sums[4 * j + 2 * h + i];
      }
    }
  }
  const int segments = gridDim.x;
  if (segments == 1) {
    __syncthreads();
  } else {
    meet_in_cluster();
  }
  constexpr int fours = T::columns / 4;
  const int own_rows = T::rows / segments;
  for (int i = threadIdx.x; i < own_rows * fours; i += T::threads) {
    const int in_tile = segment * own_rows + i / fours, at = column + i % fours * 4;
    if (row + in_tile >= gemm.rows || at >= gemm.n) continue;
    float* const own = staged + in_tile * T::pitch + i % fours * 4;
    const float4 sum = tree_of(segments, [&](int of) {
      return *reinterpret_cast<const float4*>(segments == 1 ? own : in_block(own, of));
    });
    Out* const to = out + std::int64_t{row + in_tile} * gemm.n + at;
    if (gemm.n % 4 == 0) {
      store_four(to, sum);
    } else {
      const float each[4] = {sum.x, sum.y, sum.z, sum.w};
      for (int c = 0; c < 4 && at + c < gemm.n; ++c) store(to + c, each[c]);
    }
  }
  if (segments > 1) meet_in_cluster();  // no block's memory is freed while others read it
#endif
}

template <class T, class Out>
cudaError_t launch_tiles(const InvariantGemmCall& wanted, cudaStream_t stream) {
  auto* const kernel = multiply_tile<T, Out>;
  // Set per device: each device has its own instance of the kernel.
  const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::shared_bytes);
  if (allowed != cudaSuccess) return allowed;
  const Gemm gemm{static_cast<const bf16*>(wanted.weight),
                  static_cast<const bf16*>(wanted.x),
                  static_cast<int>(wanted.rows),
                  static_cast<int>(wanted.n),
                  static_cast<int>(wanted.k),
                  static_cast<int>(wanted.k / wanted.segments)};
  const auto segments = static_cast<unsigned>(wanted.segments);
  const dim3 blocks(segments, blocks_of(wanted.rows, T::rows), blocks_of(wanted.n, T::columns));
  return launch_early_as(dim3(segments), kernel, {blocks, T::threads, T::shared_bytes}, stream,
                         gemm, static_cast<Out*>(wanted.out));
}

/// Uses tiles of 64 columns where those of 128 would leave multiprocessors idle.
template <class Out>
cudaError_t launch_tiles_of_rows(const InvariantGemmCall& wanted, cudaStream_t stream) {
  const std::int64_t tiles = (wanted.n + 127) / 128 * wanted.segments * ((wanted.rows + 63) / 64);
  const bool small = tiles < 100;
  if (wanted.rows <= 16) {
    return small ? launch_tiles<Tiling<1, 16, 8>, Out>(wanted, stream)
                 : launch_tiles<Tiling<2, 16, 6>, Out>(wanted, stream);
  }
  if (wanted.rows <= 32) {
    return small ? launch_tiles<Tiling<1, 32, 8>, Out>(wanted, stream)
                 : launch_tiles<Tiling<2, 32, 5>, Out>(wanted, stream);
  }
  return small ? launch_tiles<Tiling<1, 64, 6>, Out>(wanted, stream)
               : launch_tiles<Tiling<2, 64, 4>, Out>(wanted, stream);
}

/// A thread per element; for sizes that tensor cores do not support.
template <class Out>
__global__ void multiply_elements(const Gemm gemm, int segments, Out* out) {
  const std::int64_t at = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= std::int64_t{gemm.rows} * gemm.n) return;
  const bf16* const x = gemm.x + at / gemm.n * gemm.k;
  const bf16* const weight = gemm.weight + at % gemm.n * gemm.k;
  const auto chain = [&](int segment) {
    float sum = 0.0F;
    const int begin = segment * gemm.segment_k;
    for (int i = begin; i < begin + gemm.segment_k; ++i) {
      sum = __fmaf_rn(load(x + i), load(weight + i), sum);
    }
    return float4{sum, 0.0F, 0.0F, 0.0F};
  };
  store(out + at, tree_of(segments, chain).x);
}

template <class Out>
cudaError_t launch_elements(const InvariantGemmCall& wanted, cudaStream_t stream) {
  const Gemm gemm{static_cast<const bf16*>(wanted.weight),
                  static_cast<const bf16*>(wanted.x),
                  static_cast<int>(wanted.rows),
                  static_cast<int>(wanted.n),
                  static_cast<int>(wanted.k),
                  static_cast<int>(wanted.k / wanted.segments)};
  constexpr unsigned threads = 128;
  multiply_elements<<<blocks_of(wanted.rows * wanted.n, threads), threads, 0, stream>>>(
      gemm, wanted.segments, static_cast<Out*>(wanted.out));
  return cudaPeekAtLastError();
}

template <class Out>
__global__ void add_parts(const float4* parts, int segments, std::int64_t fours, Out* out) {
  begin_early_kernel();
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= fours) return;
  store_four(out + 4 * i, tree_of(segments, [&](int of) { return parts[of * fours + i]; }));
}

__global__ void find_difference(const std::uint32_t* left, const std::uint32_t* right,
                                std::size_t words, unsigned* differ) {
  const std::size_t all = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += all) {
    if (left[i] != right[i]) *differ = 1;
  }
}

}  // namespace
}  // namespace cuda

using namespace cuda;

cudaError_t launch_invariant_gemm(const InvariantGemmCall& gemm, cudaStream_t stream) {
  const bool wide = gemm.out_dtype == DType::f32;
  const std::int64_t segment_k = gemm.k / gemm.segments;
  if (!hopper_kernels_run() || segment_k % unit_elements != 0) {
    return wide ? launch_elements<float>(gemm, stream) : launch_elements<bf16>(gemm, stream);
  }
  return wide ? launch_tiles_of_rows<float>(gemm, stream)
              : launch_tiles_of_rows<bf16>(gemm, stream);
}

cudaError_t add_segments(const float* parts, int segments, std::int64_t count, void* out,
                         DType out_dtype, cudaStream_t stream) {
  constexpr unsigned threads = 256;
  const auto* const fours = reinterpret_cast<const float4*>(parts);
  const Grid grid{dim3(blocks_of(count / 4, threads)), threads};
  if (out_dtype == DType::f32) {
    return launch_early(add_parts<float>, grid, stream, fours, segments, count / 4,
                        static_cast<float*>(out));
  }
  return launch_early(add_parts<bf16>, grid, stream, fours, segments, count / 4,
                      static_cast<bf16*>(out));
}

cudaError_t compare_bits(const void* left, const void* right, std::size_t bytes, unsigned* differ,
                         cudaStream_t stream) {
  constexpr unsigned threads = 256, blocks = 1024;
  find_difference<<<blocks, threads, 0, stream>>>(static_cast<const std::uint32_t*>(left),
                                                  static_cast<const std::uint32_t*>(right),
                                                  bytes / sizeof(std::uint32_t), differ);
  return cudaPeekAtLastError();
}

}  // namespace troupe
