// GEMMs of up to 8 rows with a matrix of codes, at memory bandwidth. A tile is 16 rows of the
// matrix, two panels. The warps of a block form groups; a group has a tile at a time, of which each
// warp takes every so many-th slab. Slabs arrive in shared memory by a queue of the warp's own, and
// the first are requested before x is ready.
#include <algorithm>
#include <type_traits>

#include "models/ops/cuda/attention/matrix_loads.cuh"
#include "models/ops/cuda/common/hopper.hpp"
#include "models/ops/cuda/common/mma_m16n8k16.cuh"
#include "models/ops/cuda/common/ptx_sm90.cuh"
#include "models/ops/cuda/common/silu.cuh"
#include "models/ops/cuda/gemm/code_fragments.cuh"
#include "models/ops/cuda/gemm/coded_gemm.hpp"
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
constexpr int slab_units = 2;
constexpr int max_stages = 8;  // slabs under way for a warp
constexpr int min_stages = 2;
constexpr int columns_of_unit = static_cast<int>(unit_columns);
constexpr int columns_of_slab = slab_units * columns_of_unit;
constexpr int row_units = columns_of_unit / 8;  // of 16 bytes in a row of x of a unit
constexpr int max_shared = 200 * 1024;
constexpr int box_alignment = 128;

struct Job {
  CUtensorMap panels;
  const float* row_scales;
  const bf16* x;
  void* out;
  CodeLayout layout;
  int rows, n, k;
  int stages, stage_bytes, x_row_bytes;
  int group_warps;
  bool gated, is_f32;
};

/// A warp's slabs, requested, awaited and released in order.
class SlabsOfCodes {
 public:
  __device__ SlabsOfCodes(const Job& job, unsigned char* memory,
                          std::uint64_t (&barriers)[max_stages])
      : job_(job), memory_(memory), barriers_(shared_address(barriers)) {
    if (threadIdx.x % 32 == 0) {
      for (int i = 0; i < job.stages; ++i) open_barrier(barriers_ + 8 * i);
      show_barriers();
    }
    __syncwarp();
  }
  __device__ __forceinline__ void request(int tile, int slab) {
    if (threadIdx.x % 32 == 0) {
      const std::uint32_t barrier = barriers_ + 8 * to_;
      expect_bytes(barrier, 2 * slab_units * job_.layout.unit_bytes);
      copy_panels(shared_address(memory_ + to_ * job_.stage_bytes), &job_.panels, job_.gated,
                  slab * slab_units, 2 * tile, barrier);
    }
    to_ = to_ + 1 == job_.stages ? 0 : to_ + 1;
  }
  /// Waits for a slab and returns where it is: the units of the first panel, then those of the
  /// second.
  __device__ __forceinline__ const unsigned char* wait() const {
    wait_for_bytes(barriers_ + 8 * from_, turn_);
    return memory_ + from_ * job_.stage_bytes;
  }
  /// The next request may reuse the slab's memory.
  __device__ __forceinline__ void release() {
    __syncwarp();
    from_ = from_ + 1 == job_.stages ? 0 : from_ + 1;
    if (from_ == 0) turn_ ^= 1;
  }

 private:
  const Job& job_;
  unsigned char* memory_;
  std::uint32_t barriers_;
  int to_ = 0, from_ = 0;
  std::uint32_t turn_ = 0;
};

/// Where a lane takes operands from x in shared memory; lanes whose row is missing take zeros.
struct LaneOfX {
  std::uint32_t begin;
  std::uint32_t mask;

  __device__ __forceinline__ void read(int column, std::uint32_t (&two_steps)[4]) const {
    load_matrices<false>(two_steps,
                         begin + (static_cast<std::uint32_t>(column * sizeof(bf16)) & mask));
  }
};

/// Copies x to shared memory, with zeros up to whole slabs, and 16 bytes of zeros behind it. Called
/// by all threads.
__device__ __forceinline__ LaneOfX place_x(const Job& job, unsigned char* memory) {
  const int padded = job.x_row_bytes / 16 - 1;  // units of a row
  for (int unit = threadIdx.x; unit < padded; unit += threads) {
    uint4 loaded[tile_rows];
#pragma unroll
    for (int row = 0; row < tile_rows; ++row) {
      const bool there = row < job.rows && unit * 8 < job.k;
      loaded[row] =
          there ? *reinterpret_cast<const uint4*>(job.x + std::int64_t{row} * job.k + unit * 8)
                : uint4{};
    }
#pragma unroll
    for (int row = 0; row < tile_rows; ++row) {
      if (row >= job.rows) break;
      *reinterpret_cast<uint4*>(memory + row * job.x_row_bytes + unit * 16) = loaded[row];
    }
  }
  unsigned char* const zeros = memory + job.rows * job.x_row_bytes;
  if (threadIdx.x == 0) *reinterpret_cast<uint4*>(zeros) = uint4{};
  __syncthreads();
  const int lane = threadIdx.x % 32, row = lane % 8;
  if (row >= job.rows) return {shared_address(zeros), 0};
  return {shared_address(memory + row * job.x_row_bytes) + lane / 8 * 16, ~0U};
}

/// Adds the products of two units with columns of x from `column` on to `sums`; `group_chunks` of
/// 32 columns share a scale.
template <class Traits, int group_chunks>
__device__ __forceinline__ void multiply_units(const CodeLayout& layout, const unsigned char* upper,
                                               const unsigned char* lower, const LaneOfX& x,
                                               int column, float (&sums)[4]) {
  constexpr CodeKind kind = Traits::kind;
  constexpr bool has_zeros = Traits::has_zeros;
  const int own = threadIdx.x % 32 / 4;
  LaneCodes<kind, has_zeros> top, bottom;
  top.read(upper);
  bottom.read(lower);
  float even[4] = {}, odd[4] = {};
#pragma unroll
  for (int chunk = 0; chunk < steps / 2; ++chunk) {
    const int place = chunk / group_chunks * static_cast<int>(panel_rows) + own;
    const std::uint32_t top_offset = offset_at<kind, has_zeros>(layout, upper, place);
    const std::uint32_t bottom_offset = offset_at<kind, has_zeros>(layout, lower, place);
    std::uint32_t operands[4];
    x.read(column + 32 * chunk, operands);
    const auto add = [&](int step, float(&to)[4]) {
      mma(to, top.pair(step, 0, top_offset), bottom.pair(step, 0, bottom_offset),
          top.pair(step, 1, top_offset), bottom.pair(step, 1, bottom_offset),
          operands[step % 2 * 2], operands[step % 2 * 2 + 1]);
    };
    add(2 * chunk, even);
    add(2 * chunk + 1, odd);
    if ((chunk + 1) % group_chunks != 0) continue;
    const float2 scales = scales_at(layout, upper, lower, place);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sums[i] = fmaf(even[i] + odd[i], scales.x, sums[i]);
      sums[2 + i] = fmaf(even[2 + i] + odd[2 + i], scales.y, sums[2 + i]);
      even[i] = even[2 + i] = odd[i] = odd[2 + i] = 0.0F;
    }
  }
}

template <class Traits>
__device__ __forceinline__ void multiply_units(const CodeLayout& layout, const unsigned char* upper,
                                               const unsigned char* lower, const LaneOfX& x,
                                               int column, float (&sums)[4]) {
  if constexpr (Traits::kind == CodeKind::e2m1) {  // groups of MXFP4
    multiply_units<Traits, 1>(layout, upper, lower, x, column, sums);
  } else if (layout.group_chunks == 4) {
    multiply_units<Traits, 4>(layout, upper, lower, x, column, sums);
  } else if (layout.group_chunks == 2) {
    multiply_units<Traits, 2>(layout, upper, lower, x, column, sums);
  } else {
    multiply_units<Traits, 1>(layout, upper, lower, x, column, sums);
  }
}

/// Writes the elements of a tile, whose sums are those of a group's warps: [warps, 16, rows].
/// Called by the threads of a group.
__device__ __forceinline__ void store_tile(const Job& job, int tile, const float* parts) {
  const int columns = job.gated ? tile_columns / 2 : tile_columns;
  const int width = job.gated ? job.n / 2 : job.n;
  const auto sum_of = [&](int in_tile, int of, int column) {
    const float* const first = parts + in_tile * job.rows + of;
    float sum = *first;
    for (int w = 1; w < job.group_warps; ++w) sum += first[w * tile_columns * job.rows];
    return job.row_scales == nullptr ? sum : sum * job.row_scales[column];
  };
  const int group_threads = job.group_warps * 32;
  for (int i = threadIdx.x % group_threads; i < columns * job.rows; i += group_threads) {
    const int in_tile = i % columns, of = i / columns, column = tile * columns + in_tile;
    if (column >= width) continue;
    float value = sum_of(in_tile, of, column);
    if (job.gated) value = fast_silu(value) * sum_of(in_tile + columns, of, width + column);
    const std::int64_t to = std::int64_t{of} * width + column;
    if (job.is_f32) {
      store(static_cast<float*>(job.out) + to, value);
    } else {
      store(static_cast<bf16*>(job.out) + to, value);
    }
  }
}

template <class Traits>
__global__ void __launch_bounds__(threads, 1) stream_codes(const __grid_constant__ Job job) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ std::uint64_t barriers[warps][max_stages];
  let_next_kernel_start();
  const int lane = threadIdx.x % 32, warp = __shfl_sync(~0U, threadIdx.x / 32, 0);
  const int group = warp / job.group_warps, member = warp % job.group_warps;
  const int tiles = (job.n + tile_columns - 1) / tile_columns;
  const int slabs = (job.layout.units + slab_units - 1) / slab_units;
  const int stride = static_cast<int>(gridDim.x) * (warps / job.group_warps);
  const int first = static_cast<int>(blockIdx.x) + group * static_cast<int>(gridDim.x);
  const int queue_bytes = job.stages * job.stage_bytes;
  SlabsOfCodes queue(job, memory + warp * queue_bytes, barriers[warp]);
  unsigned char* const x_memory = memory + warps * queue_bytes;
  auto* const parts =
      reinterpret_cast<float*>(x_memory + job.rows * job.x_row_bytes + sizeof(uint4));

  int next_tile = member < slabs ? first : tiles, next_slab = member;
  const auto request = [&] {
    if (next_tile >= tiles) return;
    queue.request(next_tile, next_slab);
    next_slab += job.group_warps;
    if (next_slab < slabs) return;
    next_slab = member;
    next_tile += stride;
  };
  for (int i = 0; i < job.stages; ++i) request();
  wait_for_kernels_before();
  const LaneOfX x = place_x(job, x_memory);
  const int part_floats = tile_columns * job.rows;
  float* slot = parts + group * job.group_warps * part_floats;
  int other = warps * part_floats;  // the second set of parts is that far behind
  for (int tile = first; tile < tiles; tile += stride) {
    float sums[4] = {};
    for (int slab = member; slab < slabs; slab += job.group_warps) {
      const unsigned char* const upper = queue.wait();
      const unsigned char* const lower = upper + slab_units * job.layout.unit_bytes;
#pragma unroll
      for (int u = 0; u < slab_units; ++u) {
        if (slab * slab_units + u >= job.layout.units) break;
        const int at = u * job.layout.unit_bytes;
        multiply_units<Traits>(job.layout, upper + at, lower + at, x,
                               slab * columns_of_slab + u * columns_of_unit, sums);
      }
      queue.release();
      request();
    }
    float* const own = slot + member * part_floats;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = lane % 4 * 2 + i % 2, in_tile = lane / 4 + i / 2 * 8;
      if (row < job.rows) own[in_tile * job.rows + row] = sums[i];
    }
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "r"(job.group_warps * 32) : "memory");
    store_tile(job, tile, slot);
    slot += other;
    other = -other;
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
/// Bytes of a row in shared memory, so that eight rows begin in different banks.
constexpr int decoded_row_bytes = columns_of_unit * static_cast<int>(sizeof(bf16)) + 16;
constexpr int lane_units = tile_rows * row_units / 32;  // of 16 bytes that a lane writes

/// A warp decodes a unit at a time. Grid: any number of blocks.
template <class Traits>
__global__ void __launch_bounds__(decoding_warps * 32)
    decode_units(const __grid_constant__ Decoding job) {
  __shared__ __align__(16) unsigned char memory[decoding_warps][tile_rows * decoded_row_bytes];
  let_next_kernel_start();
  wait_for_kernels_before();
  const CodeLayout& layout = job.layout;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = lane / 4, fourth = lane % 4;
  const int panels = (job.count + 7) / 8;
  for (std::int64_t i = blockIdx.x * decoding_warps + warp; i < std::int64_t{panels} * layout.units;
       i += gridDim.x * decoding_warps) {
    const int panel = static_cast<int>(i / layout.units), unit = static_cast<int>(i % layout.units);
    const unsigned char* const from =
        job.panels +
        ((std::int64_t{job.first / 8} + panel) * layout.units + unit) * layout.unit_bytes;
    LaneCodes<Traits::kind, Traits::has_zeros> codes;
    codes.read(from);
    unsigned char* const rows = memory[warp];
    const int row = min(8 * panel + own, job.count - 1);
    float scale = layout.scales_in_units ? 1.0F : job.row_scales[job.first + row];
    std::uint32_t offset = 0;
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      if (step % 2 == 0 && (step / 2 & (layout.group_chunks - 1)) == 0) {
        const int place = step / 2 / layout.group_chunks * 8 + own;
        offset = offset_at<Traits::kind, Traits::has_zeros>(layout, from, place);
        if (layout.scales_in_units) scale = scales_at(layout, from, from, place).x;
      }
#pragma unroll
      for (int high = 0; high < 2; ++high) {
        const float2 two = __bfloat1622float2(pair_of(codes.pair(step, high, offset)));
        *reinterpret_cast<__nv_bfloat162*>(rows + own * decoded_row_bytes + 32 * step + 16 * high +
                                           4 * fourth) =
            __floats2bfloat162_rn(two.x * scale, two.y * scale);
      }
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < lane_units; ++j) {
      const int place = lane + 32 * j, of = place / row_units;
      const int column = unit * columns_of_unit + place % row_units * 8;
      if (8 * panel + of >= job.count || column >= job.k) continue;
      *reinterpret_cast<uint4*>(job.out + (std::int64_t{8} * panel + of) * job.k + column) =
          *reinterpret_cast<const uint4*>(rows + of * decoded_row_bytes + place % row_units * 16);
    }
    __syncwarp();
  }
}

int stage_bytes(const CodedPanels& layout) {
  const auto bytes = static_cast<int>(2 * slab_units * layout.unit_bytes());
  return (bytes + box_alignment - 1) / box_alignment * box_alignment;
}

int x_row_bytes(const CodedPanels& layout) {
  const int slabs = static_cast<int>(layout.units() + slab_units - 1) / slab_units;
  return slabs * columns_of_slab * static_cast<int>(sizeof(bf16)) + 16;
}

/// Shared memory besides the queues.
int other_bytes(const CodedGemm& gemm) {
  const auto rows = static_cast<int>(gemm.rows);
  const int parts = 2 * warps * tile_columns * static_cast<int>(sizeof(float));
  return rows * (x_row_bytes(gemm.weight.layout) + parts) + static_cast<int>(sizeof(uint4));
}

int stages_for(const CodedGemm& gemm) {
  const int room = (max_shared - other_bytes(gemm)) / warps;
  return std::min(max_stages, room / stage_bytes(gemm.weight.layout));
}

}  // namespace
}  // namespace cuda

using namespace cuda;

bool coded_gemm_fits(const CodedGemm& gemm) {
  const CodedPanels& layout = gemm.weight.layout;
  return hopper_kernels_run() && gemm.rows <= tile_rows && stages_for(gemm) >= min_stages &&
         (!gemm.gated || layout.rows % (2 * panel_rows) == 0);
}

cudaError_t launch_coded_gemm(const CodedGemm& gemm, cudaStream_t stream) {
  const CodedPanels& layout = gemm.weight.layout;
  Job job{};
  if (!map_panels(layout, gemm.weight.panels, gemm.gated, slab_units, 2, job.panels)) {
    return cudaErrorInvalidValue;
  }
  const auto tiles = static_cast<int>(blocks_of(layout.rows, tile_columns));
  const int blocks = std::min(tiles, multiprocessors());
  job.row_scales = layout.group_columns > 0 ? nullptr : gemm.weight.row_scales;
  job.x = static_cast<const bf16*>(gemm.x);
  job.out = gemm.out;
  job.layout = code_layout(layout);
  job.rows = static_cast<int>(gemm.rows);
  job.n = static_cast<int>(layout.rows);
  job.k = static_cast<int>(layout.columns);
  job.stages = stages_for(gemm);
  job.stage_bytes = stage_bytes(layout);
  job.x_row_bytes = x_row_bytes(layout);
  // Groups that each have a tile of a multiprocessor's, of at most four.
  job.group_warps = tiles > 2 * blocks ? warps / 4 : tiles > blocks ? warps / 2 : warps;
  job.gated = gemm.gated;
  job.is_f32 = gemm.out_dtype == DType::f32;
  const int shared = other_bytes(gemm) + warps * job.stages * job.stage_bytes;
  cudaError_t error = cudaSuccess;
  with_traits(layout, [&]<class Traits>(Traits) {
    auto* const kernel = stream_codes<Traits>;
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, max_shared);
    if (error != cudaSuccess) return;
    error = launch_early(
        kernel, {dim3(static_cast<unsigned>(blocks)), threads, static_cast<std::size_t>(shared)},
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
  const unsigned needed =
      blocks_of(blocks_of(count, panel_rows) * weight.layout.units(), decoding_warps);
  const unsigned blocks = std::min(needed, static_cast<unsigned>(8 * multiprocessors()));
  cudaError_t error = cudaSuccess;
  with_traits(weight.layout, [&]<class Traits>(Traits) {
    error = launch_early(decode_units<Traits>, {dim3(blocks), decoding_warps * 32}, stream, job);
  });
  return error;
}

}  // namespace troupe
