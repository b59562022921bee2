#include "models/ops/cuda/few_rows.hpp"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr int warps = 8, threads = warps * 32;
constexpr int tile_columns = 16;        // rows of the weight that a block multiplies
constexpr int tile_rows = 8;            // rows of x of one instruction
constexpr int chunk = 32;               // of k, for two instructions
constexpr int chunks = 4;               // of a warp at once: 4 KiB of weights under way
constexpr int warp_k = chunk * chunks;  // consecutive, of one warp
constexpr int step_k = warp_k * warps;

/// d += a . b of 16 rows and 8 columns over 16 of k (mma m16n8k16). Lane l has of a the rows l / 4
/// and l / 4 + 8 at four of k, two in `low` and two in `high`; of b column l / 4 at the same four;
/// in d[2 h + i] row l / 4 + 8 h, column 2 (l % 4) + i. Which four of k they are is up to the
/// caller, the same for a and b.
__device__ __forceinline__ void multiply_add(float (&d)[4], std::uint32_t top_low,
                                             std::uint32_t bottom_low, std::uint32_t top_high,
                                             std::uint32_t bottom_high, std::uint32_t low,
                                             std::uint32_t high) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(top_low), "r"(bottom_low), "r"(top_high), "r"(bottom_high), "r"(low), "r"(high));
}

/// 16 bytes that are read once.
__device__ __forceinline__ uint4 load_once(const bf16* from) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}

/// Grid: tiles of 16 rows of the weight; a gated one has 8 gates, then their 8 ups.
template <bool gated, class Out>
__global__ void __launch_bounds__(threads, 2)
    multiply_rows(const bf16* weight, const bf16* x, int rows, int n, std::int64_t k, Out* out) {
  __shared__ float parts[warps][tile_columns][tile_rows];
  let_next_kernel_start();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = lane / 4;
  constexpr int columns = gated ? tile_columns / 2 : tile_columns;
  const int width = gated ? n / 2 : n;
  const int begin = blockIdx.x * columns;
  const bf16* upper = weight + min(begin + own, width - 1) * k;
  const bf16* lower =
      weight + (gated ? width + min(begin + own, width - 1) : min(begin + own + 8, n - 1)) * k;
  const bf16* row = own < rows ? x + own * k : nullptr;

  const int in_chunk = lane % 4 * 8;
  std::int64_t at = warp * warp_k + in_chunk;
  uint4 top[chunks], bottom[chunks];
  const auto load_weights = [&](std::int64_t from) {
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
      const bool there = from + i * chunk < k;
      top[i] = there ? load_once(upper + from + i * chunk) : uint4{};
      bottom[i] = there ? load_once(lower + from + i * chunk) : uint4{};
    }
  };
  load_weights(at);
  wait_for_kernels_before();
  float sums[4] = {};
  for (; at - in_chunk < k; at += step_k) {
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
      const bool there = at + i * chunk < k && row != nullptr;
      const uint4 b = there ? *reinterpret_cast<const uint4*>(row + at + i * chunk) : uint4{};
      multiply_add(sums, top[i].x, bottom[i].x, top[i].y, bottom[i].y, b.x, b.y);
      multiply_add(sums, top[i].z, bottom[i].z, top[i].w, bottom[i].w, b.z, b.w);
    }
    load_weights(at + step_k);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    parts[warp][own][lane % 4 * 2 + i] = sums[i];
    parts[warp][own + 8][lane % 4 * 2 + i] = sums[2 + i];
  }
  __syncthreads();
  if (threadIdx.x >= tile_rows * columns) return;
  const int to_row = threadIdx.x / columns, column = threadIdx.x % columns;
  if (to_row >= rows || begin + column >= width) return;
  const auto sum_of = [&](int of) {
    float sum = parts[0][of][to_row];
#pragma unroll
    for (int w = 1; w < warps; ++w) sum += parts[w][of][to_row];
    return sum;
  };
  float value = sum_of(column);
  if constexpr (gated) value = value / (1.0F + __expf(-value)) * sum_of(column + columns);
  store(out + std::int64_t{to_row} * width + begin + column, value);
}

}  // namespace
}  // namespace cuda

using namespace cuda;

bool few_rows_fit(const FewRowsProduct& product) {
  return TROUPE_HOPPER != 0 && product.rows <= tile_rows && product.k % 8 == 0;
}

cudaError_t multiply_few_rows(const FewRowsProduct& product, cudaStream_t stream) {
  const auto run = [&](auto* kernel, auto* out, int columns) {
    return launch_early(kernel, {dim3(blocks_of(product.n, columns)), threads}, stream,
                        static_cast<const bf16*>(product.weight),
                        static_cast<const bf16*>(product.x), static_cast<int>(product.rows),
                        static_cast<int>(product.n), product.k, out);
  };
  cudaError_t error = cudaSuccess;
  with_type(product.out_dtype, [&](auto* type) {
    using Out = element<decltype(type)>;
    auto* out = static_cast<Out*>(product.out);
    error = product.gated ? run(multiply_rows<true, Out>, out, tile_columns)
                          : run(multiply_rows<false, Out>, out, tile_columns);
  });
  return error;
}

}  // namespace troupe
