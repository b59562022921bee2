// GEMMs of up to 8 rows with a matrix of codes, at memory bandwidth. Blocks take every gridDim.x-th
// tile of 16 rows of the matrix, two panels; a warp takes every 16th unit of a tile, which arrives
// in shared memory by a queue of the warp's own. The first units are requested before x is ready.
#include <algorithm>
#include <type_traits>

#include "models/ops/cuda/attention/matrix_loads.cuh"
#include "models/ops/cuda/common/hopper.hpp"
#include "models/ops/cuda/common/mma_m16n8k16.cuh"
#include "models/ops/cuda/common/ptx_sm90.cuh"
#include "models/ops/cuda/common/silu.cuh"
#include "models/ops/cuda/gemm/code_fragments.cuh"
#include "models/ops/cuda/gemm/coded_gemm.hpp"
#include "models/ops/cuda/gemm/weight_stream.cuh"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace cuda {
namespace {

constexpr int warps = 16, threads = warps * 32;
constexpr int tile_columns = 16;  // rows of the matrix of one instruction
constexpr int tile_rows = 8;      // rows of x of one instruction
constexpr int steps = 8;          // instructions for a unit
constexpr int max_stages = 8;     // units under way for a warp
constexpr int columns_of_unit = static_cast<int>(unit_columns);
/// Bytes of a row of x in shared memory, so that eight rows begin in different banks.
constexpr int x_row_bytes = columns_of_unit * static_cast<int>(sizeof(bf16)) + 16;
constexpr int x_bytes = tile_rows * x_row_bytes;
constexpr int x_units = columns_of_unit / 8;              // of 16 bytes in a row
constexpr int x_loads = tile_rows * x_units / 32;         // of a lane
constexpr int max_shared = 220 * 1024;

struct Job {
  const unsigned char* panels;
  const float* row_scales;
  const bf16* x;
  void* out;
  CodeLayout layout;
  int rows, n, k;
  int stages;
  bool gated, is_f32;
};

/// A warp's pairs of units, one of each panel of a tile: requested, awaited and released in order.
class UnitQueue {
 public:
  __device__ UnitQueue(unsigned char* memory, std::uint64_t (&barriers)[max_stages], int stages,
                       int unit_bytes)
      : memory_(memory),
        barriers_(shared_address(barriers)),
        stages_(stages),
        unit_bytes_(unit_bytes) {
    if (threadIdx.x % 32 == 0) {
      for (int i = 0; i < stages; ++i) open_barrier(barriers_ + 8 * i);
      show_barriers();
    }
    __syncwarp();
  }
  /// Lanes 0 and 1 pass where the units of the first and second panel are.
  __device__ __forceinline__ void request(const unsigned char* unit) {
    const int lane = threadIdx.x % 32;
    const std::uint32_t barrier = barriers_ + 8 * to_;
    if (lane == 0) expect_bytes(barrier, 2 * unit_bytes_);
    __syncwarp();
    if (lane < 2) {
      const std::uint32_t to = shared_address(memory_ + (2 * to_ + lane) * unit_bytes_);
      copy_bulk(to, unit, unit_bytes_, barrier);
    }
    to_ = to_ + 1 == stages_ ? 0 : to_ + 1;
  }
  /// Waits for a pair and returns where the first of it is; the second follows.
  __device__ __forceinline__ const unsigned char* wait() const {
    wait_for_bytes(barriers_ + 8 * from_, turn_);
    return memory_ + 2 * from_ * unit_bytes_;
  }
  /// The next request may reuse the pair's memory.
  __device__ __forceinline__ void release() {
    __syncwarp();
    from_ = from_ + 1 == stages_ ? 0 : from_ + 1;
    if (from_ == 0) turn_ ^= 1;
  }

 private:
  unsigned char* memory_;
  std::uint32_t barriers_;
  int stages_, unit_bytes_, to_ = 0, from_ = 0;
  std::uint32_t turn_ = 0;
};

/// A warp's columns of x: from device memory to registers, and through shared memory to the order
/// of the tensor cores' operands.
class UnitOfX {
 public:
  __device__ UnitOfX(const Job& job, unsigned char* memory) : job_(job), memory_(memory) {}

  __device__ __forceinline__ void load(int unit) {
#pragma unroll
    for (int i = 0; i < x_loads; ++i) {
      const int place = threadIdx.x % 32 + 32 * i, row = place / x_units;
      const int column = unit * columns_of_unit + place % x_units * 8;
      const bool there = row < job_.rows && column < job_.k;
      loaded_[i] =
          there ? *reinterpret_cast<const uint4*>(job_.x + std::int64_t{row} * job_.k + column)
                : uint4{};
    }
  }
  /// Makes what was loaded the operands.
  __device__ __forceinline__ void arrange(std::uint32_t (&operands)[2 * steps]) const {
    const int lane = threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < x_loads; ++i) {
      const int place = lane + 32 * i;
      *reinterpret_cast<uint4*>(memory_ + place / x_units * x_row_bytes + place % x_units * 16) =
          loaded_[i];
    }
    __syncwarp();
    const std::uint32_t from = shared_address(memory_) + lane % 8 * x_row_bytes + lane / 8 * 16;
#pragma unroll
    for (int i = 0; i < steps / 2; ++i) {
      std::uint32_t two[4];
      load_matrices<false>(two, from + 64 * i);
#pragma unroll
      for (int j = 0; j < 4; ++j) operands[4 * i + j] = two[j];
    }
  }

 private:
  const Job& job_;
  unsigned char* memory_;
  uint4 loaded_[x_loads];
};

/// Adds the products of a pair of units with x to `sums`.
template <CodeKind kind>
__device__ __forceinline__ void multiply_units(const CodeLayout& layout, const unsigned char* upper,
                                               const std::uint32_t (&x)[2 * steps],
                                               float (&sums)[4]) {
  const unsigned char* const lower = upper + layout.unit_bytes;
  const int own = threadIdx.x % 32 / 4;
  LaneCodes<kind> top, bottom;
  top.read(upper);
  bottom.read(lower);
  std::uint32_t top_offset = offset_at<kind>(layout, upper, own);
  std::uint32_t bottom_offset = offset_at<kind>(layout, lower, own);
  float even[4] = {}, odd[4] = {};
  int place = own;
#pragma unroll
  for (int chunk = 0; chunk < steps / 2; ++chunk) {
    const auto add = [&](int step, float(&to)[4]) {
      mma(to, top.pair(step, 0, top_offset), bottom.pair(step, 0, bottom_offset),
          top.pair(step, 1, top_offset), bottom.pair(step, 1, bottom_offset), x[2 * step],
          x[2 * step + 1]);
    };
    add(2 * chunk, even);
    add(2 * chunk + 1, odd);
    if (((chunk + 1) & (layout.group_chunks - 1)) != 0) continue;
    float scale = 1.0F, lower_scale = 1.0F;
    if (layout.scales_in_units) {
      scale = scale_at(layout, upper, place);
      lower_scale = scale_at(layout, lower, place);
    }
    place += static_cast<int>(panel_rows);
    if (layout.has_zero_points && chunk + 1 < steps / 2) {
      top_offset = offset_at<kind>(layout, upper, place);
      bottom_offset = offset_at<kind>(layout, lower, place);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sums[i] = fmaf(even[i] + odd[i], scale, sums[i]);
      sums[2 + i] = fmaf(even[2 + i] + odd[2 + i], lower_scale, sums[2 + i]);
      even[i] = even[2 + i] = odd[i] = odd[2 + i] = 0.0F;
    }
  }
}

template <CodeKind kind>
__global__ void __launch_bounds__(threads, 1) stream_codes(const __grid_constant__ Job job) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ std::uint64_t barriers[warps][max_stages];
  __shared__ TileSums<warps> sums;
  let_next_kernel_start();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const CodeLayout& layout = job.layout;
  const int columns = job.gated ? tile_columns / 2 : tile_columns;
  const int width = job.gated ? job.n / 2 : job.n;
  const int tiles = (width + columns - 1) / columns;
  const int queue_bytes = 2 * job.stages * layout.unit_bytes;
  UnitQueue queue(memory + warp * queue_bytes, barriers[warp], job.stages, layout.unit_bytes);
  unsigned char* const x_memory = memory + warps * queue_bytes;
  auto* const parts = reinterpret_cast<float*>(x_memory + warps * x_bytes);

  // Lane 0 requests of the first panel of a tile, lane 1 of the second.
  const auto panel = [&](int tile) {
    const int panels = (job.n + 7) / 8;
    const int number = job.gated ? tile + (lane == 1 ? panels / 2 : 0)
                                 : min(2 * tile + (lane == 1 ? 1 : 0), panels - 1);
    return job.panels + std::int64_t{number} * layout.units * layout.unit_bytes;
  };
  int next_tile = warp < layout.units ? static_cast<int>(blockIdx.x) : tiles, next_unit = warp;
  const auto request = [&] {
    if (next_tile >= tiles) return;
    queue.request(panel(next_tile) + next_unit * layout.unit_bytes);
    next_unit += warps;
    if (next_unit < layout.units) return;
    next_unit = warp;
    next_tile += gridDim.x;
  };
  for (int i = 0; i < job.stages; ++i) request();
  sums.open();
  __syncthreads();
  wait_for_kernels_before();
  if (warp >= layout.units) return;

  UnitOfX x(job, x_memory + warp * x_bytes);
  std::uint32_t operands[2 * steps];
  x.load(warp);
  x.arrange(operands);
  const bool has_one = warp + warps >= layout.units;  // unit of each tile: x stays the same
  const auto following = [&](int unit) {
    return unit + warps < layout.units ? unit + warps : warp;
  };
  if (!has_one) x.load(following(warp));
  int done = 0;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++done) {
    float own_sums[4] = {};
    const float none[4] = {};
    for (int unit = warp; unit < layout.units; unit += warps) {
      multiply_units<kind>(layout, queue.wait(), operands, own_sums);
      queue.release();
      request();
      if (has_one) continue;
      x.arrange(operands);
      x.load(following(following(unit)));
    }
    sums.add(parts, job.rows, done, min(warps, layout.units), own_sums, none,
             [&](const auto& sum) {
               const auto scaled = [&](int in_tile, int of, int column) {
                 const float value = sum(in_tile, of);
                 return job.row_scales == nullptr ? value : value * job.row_scales[column];
               };
               for (int i = lane; i < columns * job.rows; i += 32) {
                 const int in_tile = i % columns, of = i / columns;
                 const int column = tile * columns + in_tile;
                 if (column >= width) continue;
                 float value = scaled(in_tile, of, column);
                 if (job.gated) {
                   value = fast_silu(value) * scaled(in_tile + columns, of, width + column);
                 }
                 const std::int64_t to = std::int64_t{of} * width + column;
                 if (job.is_f32) {
                   store(static_cast<float*>(job.out) + to, value);
                 } else {
                   store(static_cast<bf16*>(job.out) + to, value);
                 }
               }
             });
  }
#endif
}

struct Decoding {
  const unsigned char* panels;
  const float* row_scales;
  bf16* out;
  CodeLayout layout;
  int first, count, k;  // rows from `first` on
};

constexpr int decoding_warps = 8;

/// A warp decodes a unit at a time. Grid: any number of blocks.
template <CodeKind kind>
__global__ void __launch_bounds__(decoding_warps * 32)
    decode_units(const __grid_constant__ Decoding job) {
  __shared__ __align__(16) unsigned char memory[decoding_warps][x_bytes];
  let_next_kernel_start();
  wait_for_kernels_before();
  const CodeLayout& layout = job.layout;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = lane / 4, fourth = lane % 4;
  const int panels = (job.count + 7) / 8;
  for (std::int64_t i = blockIdx.x * decoding_warps + warp; i < std::int64_t{panels} * layout.units;
       i += gridDim.x * decoding_warps) {
    const int panel = static_cast<int>(i / layout.units), unit = static_cast<int>(i % layout.units);
    const unsigned char* const from =
        job.panels + ((std::int64_t{job.first / 8} + panel) * layout.units + unit) * layout.unit_bytes;
    LaneCodes<kind> codes;
    codes.read(from);
    unsigned char* const rows = memory[warp];
    const int row = min(8 * panel + own, job.count - 1);
    float scale = layout.scales_in_units ? 1.0F : job.row_scales[job.first + row];
    std::uint32_t offset = 0;
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      if (step % 2 == 0 && (step / 2 & (layout.group_chunks - 1)) == 0) {
        const int place = step / 2 / layout.group_chunks * 8 + own;
        offset = offset_at<kind>(layout, from, place);
        if (layout.scales_in_units) scale = scale_at(layout, from, place);
      }
#pragma unroll
      for (int high = 0; high < 2; ++high) {
        const float2 two = __bfloat1622float2(pair_of(codes.pair(step, high, offset)));
        *reinterpret_cast<__nv_bfloat162*>(rows + own * x_row_bytes + 32 * step + 16 * high +
                                           4 * fourth) =
            __floats2bfloat162_rn(two.x * scale, two.y * scale);
      }
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < x_loads; ++j) {
      const int place = lane + 32 * j, of = place / x_units;
      const int column = unit * columns_of_unit + place % x_units * 8;
      if (8 * panel + of >= job.count || column >= job.k) continue;
      *reinterpret_cast<uint4*>(job.out + (std::int64_t{8} * panel + of) * job.k + column) =
          *reinterpret_cast<const uint4*>(rows + of * x_row_bytes + place % x_units * 16);
    }
    __syncwarp();
  }
}

}  // namespace
}  // namespace cuda

using namespace cuda;

bool coded_gemm_fits(const CodedGemm& gemm) {
  const CodedPanels& layout = gemm.weight.layout;
  return hopper_kernels_run() && gemm.rows <= tile_rows &&
         (!gemm.gated || layout.rows % (2 * panel_rows) == 0);
}

cudaError_t launch_coded_gemm(const CodedGemm& gemm, cudaStream_t stream) {
  const CodedPanels& layout = gemm.weight.layout;
  const int others = warps * x_bytes + TileSums<warps>::bytes(tile_rows);
  const int stage_bytes = static_cast<int>(2 * warps * layout.unit_bytes());
  Job job{.panels = static_cast<const unsigned char*>(gemm.weight.panels),
          .row_scales = layout.group_columns > 0 ? nullptr : gemm.weight.row_scales,
          .x = static_cast<const bf16*>(gemm.x),
          .out = gemm.out,
          .layout = code_layout(layout),
          .rows = static_cast<int>(gemm.rows),
          .n = static_cast<int>(layout.rows),
          .k = static_cast<int>(layout.columns),
          .stages = std::min(max_stages, (max_shared - others) / stage_bytes),
          .gated = gemm.gated,
          .is_f32 = gemm.out_dtype == DType::f32};
  const int shared = others + job.stages * stage_bytes;
  const unsigned tiles = blocks_of(layout.rows, tile_columns);
  cudaError_t error = cudaSuccess;
  with_kind(layout.kind, [&]<CodeKind kind>(std::integral_constant<CodeKind, kind>) {
    auto* const kernel = stream_codes<kind>;
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, max_shared);
    if (error != cudaSuccess) return;
    error = launch_early(kernel,
                         {dim3(std::min(tiles, static_cast<unsigned>(multiprocessors()))), threads,
                          static_cast<std::size_t>(shared)},
                         stream, job);
  });
  return error;
}

cudaError_t launch_decode_rows(const CodedWeight& weight, std::int64_t first, std::int64_t count,
                               void* out, cudaStream_t stream) {
  const Decoding job{.panels = static_cast<const unsigned char*>(weight.panels),
                     .row_scales = weight.row_scales,
                     .out = static_cast<bf16*>(out),
                     .layout = code_layout(weight.layout),
                     .first = static_cast<int>(first),
                     .count = static_cast<int>(count),
                     .k = static_cast<int>(weight.layout.columns)};
  const unsigned needed = blocks_of(blocks_of(count, panel_rows) * weight.layout.units(),
                                    decoding_warps);
  const unsigned blocks = std::min(needed, static_cast<unsigned>(8 * multiprocessors()));
  cudaError_t error = cudaSuccess;
  with_kind(weight.layout.kind, [&]<CodeKind kind>(std::integral_constant<CodeKind, kind>) {
    error = launch_early(decode_units<kind>, {dim3(blocks), decoding_warps * 32}, stream, job);
  });
  return error;
}

}  // namespace troupe
