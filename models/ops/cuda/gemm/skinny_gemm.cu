#include <algorithm>
#include <type_traits>

#include "models/ops/cuda/common/hopper.hpp"
#include "models/ops/cuda/common/mma_m16n8k16.cuh"
#include "models/ops/cuda/common/silu.cuh"
#include "models/ops/cuda/gemm/skinny_gemm.hpp"
#include "models/ops/cuda/gemm/weight_stream.cuh"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace cuda {
namespace {

constexpr int warps = 8, threads = warps * 32;
constexpr int tile_columns = 16;      // rows of the weight that a block multiplies
constexpr int tile_rows = 8;          // rows of x of one instruction
constexpr int max_prefetched = 2048;  // columns of a row

/// Resident blocks per multiprocessor, given the registers that their weights take.
__host__ __device__ constexpr int resident_blocks(int chunks) {
  return chunks > 8 ? 1 : chunks > 4 ? 2 : 3;
}

enum class Form { plain, gated, heads };

/// For small matrices, all of which are being loaded to registers soon after the kernel starts.
/// Grid: tiles of 16 rows of the weight, by heads; a gated one has 8 gates, then their 8 ups. A
/// warp loads `chunks` chunks of k at once, each of 1 KiB of weights.
template <int chunks, Form form, class Out>
__global__ void __launch_bounds__(threads, resident_blocks(chunks))
    multiply_rows(const bf16* weight, const bf16* x, int rows, int n, std::int64_t k,
                  bool all_at_once, HeadRows heads, Out* out) {
  constexpr bool gated = form == Form::gated;
  constexpr int warp_k = chunk * chunks, step_k = warp_k * warps;
  __shared__ float parts[warps][tile_columns][tile_rows];
  let_next_kernel_start();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = lane / 4;
  constexpr int columns = gated ? tile_columns / 2 : tile_columns;
  const int width = gated ? n / 2 : n;
  std::int64_t x_stride = k, out_stride = width;
  if constexpr (form == Form::heads) {
    const std::int64_t head = blockIdx.y;
    weight += head * n * k;
    x += head * k;
    out += head * heads.out_width;
    x_stride = heads.x_stride;
    out_stride = heads.out_stride;
  }
  const int begin = blockIdx.x * columns;
  const bf16* upper = weight + min(begin + own, width - 1) * k;
  const bf16* lower =
      weight + (gated ? width + min(begin + own, width - 1) : min(begin + own + 8, n - 1)) * k;
  const bf16* row = own < rows ? x + own * x_stride : nullptr;

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
  // If all blocks have begun, prefetch the next weights as far as there is room, while earlier
  // kernels end.
  const std::int64_t more = min(k - step_k, std::int64_t{max_prefetched});
  if (all_at_once && more > 0 && threadIdx.x < tile_columns) {
    const int in_tile = threadIdx.x;
    const int of = gated && in_tile >= columns ? width + min(begin + in_tile - columns, width - 1)
                                               : min(begin + in_tile, gated ? width - 1 : n - 1);
    prefetch(weight + of * k + step_k, more * static_cast<std::int64_t>(sizeof(bf16)));
  }
  wait_for_kernels_before();
  float sums[4] = {};
  for (; at - in_chunk < k; at += step_k) {
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
      const bool there = at + i * chunk < k && row != nullptr;
      const uint4 b = there ? *reinterpret_cast<const uint4*>(row + at + i * chunk) : uint4{};
      mma(sums, top[i].x, bottom[i].x, top[i].y, bottom[i].y, b.x, b.y);
      mma(sums, top[i].z, bottom[i].z, top[i].w, bottom[i].w, b.z, b.w);
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
  if constexpr (gated) value = fast_silu(value) * sum_of(column + columns);
  store(out + to_row * out_stride + begin + column, value);
}

using Slabs = SlabQueue<128, 3>;
constexpr int streams = 2;  // blocks per multiprocessor: together their loads saturate it

/// For large matrices, at memory bandwidth: blocks take every gridDim.x-th tile, and a warp every
/// eighth slab of a tile. The first slabs are requested before x is ready; a lane loads the next
/// slab's x while it multiplies one.
template <bool gated, class Out>
__global__ void __launch_bounds__(threads, streams)
    stream_rows(const bf16* weight, const bf16* x, int rows, int n, int k, Out* out) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ std::uint64_t barriers[warps][Slabs::bytes / Slabs::slab_bytes];
  __shared__ TileSums<warps> sums;
  let_next_kernel_start();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = lane / 4;
  constexpr int columns = gated ? tile_columns / 2 : tile_columns;
  const int width = gated ? n / 2 : n;
  const int tiles = (width + columns - 1) / columns;
  const int slabs = (k + Slabs::columns - 1) / Slabs::columns;
  Slabs queue(memory + warp * Slabs::bytes, barriers[warp]);
  auto* const parts = reinterpret_cast<float*>(memory + warps * Slabs::bytes);

  const auto weight_row = [&](int tile) {
    const int in_tile = lane % tile_columns;
    const int column = min(tile * columns + in_tile % columns, width - 1);
    return weight + std::int64_t{in_tile < columns ? column : width + column} * k;
  };
  int next_tile = warp < slabs ? static_cast<int>(blockIdx.x) : tiles, next_slab = warp;
  const bf16* row = weight_row(blockIdx.x);
  const auto request = [&] {
    if (next_tile >= tiles) return;
    queue.request(row + next_slab * Slabs::columns, k - next_slab * Slabs::columns);
    next_slab += warps;
    if (next_slab < slabs) return;
    next_slab = warp;
    next_tile += gridDim.x;
    row = weight_row(min(next_tile, tiles - 1));
  };
#pragma unroll
  for (int i = 0; i < Slabs::bytes / Slabs::slab_bytes; ++i) request();
  sums.open();
  __syncthreads();
  wait_for_kernels_before();
  if (warp >= slabs) return;

  const bf16* const x_row = own < rows ? x + own * std::int64_t{k} : nullptr;
  uint4 now[Slabs::x_units], next[Slabs::x_units];
  read_x(x_row, warp * Slabs::columns, k, now);
  int done = 0;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++done) {
    float even[4] = {}, odd[4] = {};
    for (int slab = warp; slab < slabs; slab += warps) {
      read_x(x_row, (slab + warps < slabs ? slab + warps : warp) * Slabs::columns, k, next);
      queue.wait();
      queue.multiply(now, k - slab * Slabs::columns, even, odd);
      queue.release();
      request();
#pragma unroll
      for (int i = 0; i < Slabs::x_units; ++i) now[i] = next[i];
    }
    sums.add(parts, rows, done, min(warps, slabs), even, odd, [&](const auto& sum) {
      for (int i = lane; i < columns * rows; i += 32) {
        const int in_tile = i % columns, of = i / columns, column = tile * columns + in_tile;
        if (column >= width) continue;
        float value = sum(in_tile, of);
        if constexpr (gated) value = fast_silu(value) * sum(in_tile + columns, of);
        store(out + std::int64_t{of} * width + column, value);
      }
    });
  }
#endif
}

/// True if stream_rows is faster, as measured in passes of single rows.
bool streams_faster(const SkinnyGemm& gemm) {
  constexpr std::int64_t large = 1 << 24, odd_large = 1 << 23, step = 2048;
  return gemm.n * gemm.k >= (gemm.k % step == 0 ? large : odd_large);
}

template <bool gated, class Out>
cudaError_t launch_streamed(const SkinnyGemm& gemm, Out* out, cudaStream_t stream) {
  auto* const kernel = stream_rows<gated, Out>;
  const int shared = warps * Slabs::bytes + TileSums<warps>::bytes(gemm.rows);
  // Set per device: each device has its own instance of the kernel. The same for all rows, as
  // captured passes contain kernels for several.
  const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           warps * Slabs::bytes + TileSums<warps>::bytes(tile_rows));
  if (allowed != cudaSuccess) return allowed;
  const unsigned blocks =
      std::min(blocks_of(gemm.n, tile_columns), static_cast<unsigned>(streams * multiprocessors()));
  return launch_early(kernel, {dim3(blocks), threads, static_cast<std::size_t>(shared)}, stream,
                      static_cast<const bf16*>(gemm.weight), static_cast<const bf16*>(gemm.x),
                      static_cast<int>(gemm.rows), static_cast<int>(gemm.n),
                      static_cast<int>(gemm.k), out);
}

}  // namespace
}  // namespace cuda

using namespace cuda;

bool skinny_gemm_fits(const SkinnyGemm& gemm) {
  const bool is_aligned = gemm.heads.x_stride % 8 == 0 &&
                          reinterpret_cast<std::uintptr_t>(gemm.x) % (8 * sizeof(bf16)) == 0;
  return hopper_kernels_run() && gemm.rows <= tile_rows && gemm.k % 8 == 0 &&
         (gemm.heads.rows == 0 || is_aligned);
}

cudaError_t launch_skinny_gemm(const SkinnyGemm& gemm, cudaStream_t stream) {
  const unsigned blocks = blocks_of(gemm.n, tile_columns);
  const auto fits = [&](int chunks) {
    return blocks * gemm.matrices <= multiprocessors() * resident_blocks(chunks);
  };
  const auto run = [&](auto* kernel, auto* out, int chunks) {
    return launch_early(kernel, {dim3(blocks, static_cast<unsigned>(gemm.matrices)), threads},
                        stream, static_cast<const bf16*>(gemm.weight),
                        static_cast<const bf16*>(gemm.x), static_cast<int>(gemm.rows),
                        static_cast<int>(gemm.n), gemm.k, fits(chunks), gemm.heads, out);
  };
  cudaError_t error = cudaSuccess;
  with_type(gemm.out_dtype, [&](auto* type) {
    using Out = element<decltype(type)>;
    auto* out = static_cast<Out*>(gemm.out);
    const bool has_heads = gemm.heads.rows > 0;
    if (!has_heads && streams_faster(gemm)) {
      error = gemm.gated ? launch_streamed<true>(gemm, out, stream)
                         : launch_streamed<false>(gemm, out, stream);
      return;
    }
    const auto with_chunks = [&]<int chunks>(std::integral_constant<int, chunks>) {
      return has_heads    ? run(multiply_rows<chunks, Form::heads, Out>, out, chunks)
             : gemm.gated ? run(multiply_rows<chunks, Form::gated, Out>, out, chunks)
                          : run(multiply_rows<chunks, Form::plain, Out>, out, chunks);
    };
    // If possible, all blocks begin at once, before the work they wait for is done; then as many
    // chunks are in flight as there are. With more blocks, four chunks each were fastest.
    const std::int64_t step = std::int64_t{chunk} * warps;
    if (fits(16) && gemm.k % (16 * step) == 0) {
      error = with_chunks(std::integral_constant<int, 16>());
    } else if (fits(8) && gemm.k % (8 * step) == 0) {
      error = with_chunks(std::integral_constant<int, 8>());
    } else {
      error = with_chunks(std::integral_constant<int, 4>());
    }
  });
  return error;
}

}  // namespace troupe
