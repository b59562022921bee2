// GEMMs of one row or two with a matrix of codes, at memory bandwidth. A tile is 16 rows of the
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

constexpr int warps = 24, threads = warps * 32;
constexpr int tile_columns = 16;  // rows of the matrix of one instruction
constexpr int tile_rows = 8;      // rows of x of one instruction
constexpr int max_rows = 2;       // with more coded_decode_gemm is faster
constexpr int steps = 8;          // instructions for a unit
constexpr int max_stages = 8;     // slabs under way for a warp
constexpr int min_stages = 2;
constexpr int columns_of_unit = static_cast<int>(unit_columns);
constexpr int row_units = columns_of_unit / 8;  // of 16 bytes in a row of x of a unit
constexpr int x_unit_bytes = columns_of_unit * static_cast<int>(sizeof(bf16));
constexpr int max_shared = 200 * 1024;
constexpr int box_alignment = 128;

struct Job {
  const unsigned char* panels;
  const float* row_scales;
  const bf16* x;
  void* out;
  CodeLayout layout;
  int rows, n, k;
  int slab_units;  // 1 or 2
  int stages, stage_bytes, x_row_bytes, x_groups;
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
  /// Of two panels, `units` from these on.
  __device__ __forceinline__ void request(const unsigned char* upper, const unsigned char* lower,
                                          int units) {
    if (threadIdx.x % 32 == 0) {
      const std::uint32_t barrier = barriers_ + 8 * to_;
      const std::uint32_t to = shared_address(memory_ + to_ * job_.stage_bytes);
      const auto bytes = static_cast<std::uint32_t>(units * job_.layout.unit_bytes);
      expect_bytes(barrier, 2 * bytes);
      copy_bulk(to, upper, bytes, barrier);
      copy_bulk(to + job_.slab_units * job_.layout.unit_bytes, lower, bytes, barrier);
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
  std::uint32_t unit_bytes;  ///< 0 for zeros
  const float* sums;  ///< [groups, 8] of x, of this lane's first column of an instruction's result
};

__device__ __forceinline__ float sum_of(const uint4& eight) {
  const auto* const pairs = reinterpret_cast<const __nv_bfloat162*>(&eight);
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = __bfloat1622float2(pairs[i]);
    sum += two.x + two.y;
  }
  return sum;
}

/// Copies x to shared memory, with zeros up to whole slabs, and a unit of zeros behind it. With
/// `adds`, also the sum of each group of columns, to sums [groups, 8]. Called by all threads.
template <bool adds>
__device__ __forceinline__ LaneOfX place_x(const Job& job, unsigned char* memory, float* sums) {
  const int padded = job.x_row_bytes / 16 - 1;  // units of 16 bytes, a multiple of 32
  const int group_units = 4 * job.layout.group_chunks;
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
      if constexpr (adds) {
        float sum = sum_of(loaded[row]);
        for (int distance = group_units / 2; distance > 0; distance /= 2) {
          sum += __shfl_xor_sync(~0U, sum, distance);
        }
        if (unit % group_units == 0) sums[unit / group_units * tile_rows + row] = sum;
      }
    }
  }
  unsigned char* const zeros = memory + job.rows * job.x_row_bytes;
  if (threadIdx.x < row_units) reinterpret_cast<uint4*>(zeros)[threadIdx.x] = uint4{};
  __syncthreads();
  const int lane = threadIdx.x % 32, row = lane % 8;
  const float* const own_sums = sums + lane % 4 * 2;
  const std::uint32_t in_row = lane / 8 * 16;
  if (row >= job.rows) return {shared_address(zeros) + in_row, 0, own_sums};
  return {shared_address(memory + row * job.x_row_bytes) + in_row, x_unit_bytes, own_sums};
}

/// The numbers of 4-bit integers are 128 + bits in the products; what is too much is subtracted
/// from a group's sum, as so many times the sum of x.
template <class Traits>
constexpr bool subtracts_later = Traits::kind == CodeKind::int4;

/// Adds the products of two units with unit `unit` of x to `sums`; `group_chunks` of 32 columns
/// share a scale.
template <class Traits, int group_chunks>
__device__ __forceinline__ void multiply_units(const CodeLayout& layout, const unsigned char* upper,
                                               const unsigned char* lower, const LaneOfX& x,
                                               int unit, float (&sums)[4]) {
  constexpr CodeKind kind = Traits::kind;
  constexpr bool has_zeros = Traits::has_zeros;
  const int own = threadIdx.x % 32 / 4;
  LaneCodes<kind, has_zeros> top, bottom;
  top.read(upper);
  bottom.read(lower);
  const std::uint32_t x_at = x.begin + unit * x.unit_bytes;
  float even[4] = {}, odd[4] = {};
#pragma unroll
  for (int chunk = 0; chunk < steps / 2; ++chunk) {
    const int place = chunk / group_chunks * static_cast<int>(panel_rows) + own;
    const std::uint32_t top_offset = offset_at<kind, has_zeros>(layout, upper, place);
    const std::uint32_t bottom_offset = offset_at<kind, has_zeros>(layout, lower, place);
    std::uint32_t operands[4];
    load_matrices<false>(operands, x_at + 64 * chunk);
    const auto add = [&](int step, float(&to)[4]) {
      std::uint32_t left[4];
#pragma unroll
      for (int high = 0; high < 2; ++high) {
        if constexpr (subtracts_later<Traits>) {
          left[2 * high] = top.raw_pair(step, high);
          left[2 * high + 1] = bottom.raw_pair(step, high);
        } else {
          left[2 * high] = top.pair(step, high, top_offset);
          left[2 * high + 1] = bottom.pair(step, high, bottom_offset);
        }
      }
      mma(to, left[0], left[1], left[2], left[3], operands[step % 2 * 2],
          operands[step % 2 * 2 + 1]);
    };
    add(2 * chunk, even);
    add(2 * chunk + 1, odd);
    if ((chunk + 1) % group_chunks != 0) continue;
    const float2 scales = scales_at(layout, upper, lower, place);
    float parts[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) parts[i] = even[i] + odd[i];
    if constexpr (subtracts_later<Traits>) {
      const int group = (4 * unit + chunk) / group_chunks;
      const float2 of_x = *reinterpret_cast<const float2*>(x.sums + group * tile_rows);
      const float top_zero = __low2float(pair_of(top_offset));
      const float bottom_zero = __low2float(pair_of(bottom_offset));
      parts[0] = fmaf(-top_zero, of_x.x, parts[0]);
      parts[1] = fmaf(-top_zero, of_x.y, parts[1]);
      parts[2] = fmaf(-bottom_zero, of_x.x, parts[2]);
      parts[3] = fmaf(-bottom_zero, of_x.y, parts[3]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sums[i] = fmaf(parts[i], scales.x, sums[i]);
      sums[2 + i] = fmaf(parts[2 + i], scales.y, sums[2 + i]);
      even[i] = even[2 + i] = odd[i] = odd[2 + i] = 0.0F;
    }
  }
}

template <class Traits>
__device__ __forceinline__ void multiply_units(const CodeLayout& layout, const unsigned char* upper,
                                               const unsigned char* lower, const LaneOfX& x,
                                               int unit, float (&sums)[4]) {
  if constexpr (Traits::kind == CodeKind::e2m1) {  // groups of MXFP4
    multiply_units<Traits, 1>(layout, upper, lower, x, unit, sums);
  } else if (layout.group_chunks == 4) {
    multiply_units<Traits, 4>(layout, upper, lower, x, unit, sums);
  } else if (layout.group_chunks == 2) {
    multiply_units<Traits, 2>(layout, upper, lower, x, unit, sums);
  } else {
    multiply_units<Traits, 1>(layout, upper, lower, x, unit, sums);
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
  const int slabs = (job.layout.units + job.slab_units - 1) / job.slab_units;
  const int stride = static_cast<int>(gridDim.x) * (warps / job.group_warps);
  const int first = static_cast<int>(blockIdx.x) + group * static_cast<int>(gridDim.x);
  const int queue_bytes = job.stages * job.stage_bytes;
  SlabsOfCodes queue(job, memory + warp * queue_bytes, barriers[warp]);
  unsigned char* const x_memory = memory + warps * queue_bytes;
  auto* const x_sums =
      reinterpret_cast<float*>(x_memory + job.rows * job.x_row_bytes + x_unit_bytes);
  float* const parts = x_sums + job.x_groups * tile_rows;

  int next_tile = member < slabs ? first : tiles, next_slab = member;
  const unsigned char *upper_panel = nullptr, *lower_panel = nullptr;
  const auto find_panels = [&] {
    const int panels = job.n / static_cast<int>(panel_rows);
    const int upper = job.gated ? next_tile : 2 * next_tile;
    const int lower = job.gated ? next_tile + panels / 2 : min(upper + 1, panels - 1);
    const std::int64_t bytes = std::int64_t{job.layout.units} * job.layout.unit_bytes;
    upper_panel = job.panels + upper * bytes;
    lower_panel = job.panels + lower * bytes;
  };
  find_panels();
  const auto request = [&] {
    if (next_tile >= tiles) return;
    const int begin = next_slab * job.slab_units, at = begin * job.layout.unit_bytes;
    queue.request(upper_panel + at, lower_panel + at,
                  min(job.slab_units, job.layout.units - begin));
    next_slab += job.group_warps;
    if (next_slab < slabs) return;
    next_slab = member;
    next_tile += stride;
    find_panels();
  };
  for (int i = 0; i < job.stages; ++i) request();
  wait_for_kernels_before();
  const LaneOfX x = place_x<subtracts_later<Traits>>(job, x_memory, x_sums);
  const int part_floats = tile_columns * job.rows;
  float* slot = parts + group * job.group_warps * part_floats;
  int other = warps * part_floats;  // the second set of parts is that far behind
  for (int tile = first; tile < tiles; tile += stride) {
    float sums[4] = {};
    for (int slab = member; slab < slabs; slab += job.group_warps) {
      const unsigned char* const upper = queue.wait();
      const unsigned char* const lower = upper + job.slab_units * job.layout.unit_bytes;
      const int begin = slab * job.slab_units;
      const int count = min(job.slab_units, job.layout.units - begin);
      for (int u = 0; u < count; ++u) {
        const int at = u * job.layout.unit_bytes;
        multiply_units<Traits>(job.layout, upper + at, lower + at, x, begin + u, sums);
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

/// How a GEMM is cut.
struct Tiling {
  int blocks, group_warps, slab_units, stages;
};

int stage_bytes(const CodedPanels& layout, int slab_units) {
  const auto bytes = static_cast<int>(2 * slab_units * layout.unit_bytes());
  return (bytes + box_alignment - 1) / box_alignment * box_alignment;
}

/// Of a row of x and 16 bytes more, so that eight rows begin in different banks.
int x_row_bytes(const CodedPanels& layout) {
  const auto units = static_cast<int>(layout.units() + layout.units() % 2);
  return units * columns_of_unit * static_cast<int>(sizeof(bf16)) + 16;
}

/// The groups of columns of which x is added up.
int x_groups(const CodedPanels& layout) {
  if (layout.kind != CodeKind::int4) return 0;
  const auto units = static_cast<int>(layout.units() + layout.units() % 2);
  return units * static_cast<int>(std::max<std::int64_t>(layout.groups_of_unit(), 1));
}

/// Shared memory besides the queues.
int other_bytes(const CodedGemm& gemm) {
  const auto rows = static_cast<int>(gemm.rows);
  constexpr int float_bytes = sizeof(float);
  const int parts = 2 * warps * tile_columns * float_bytes;
  return rows * (x_row_bytes(gemm.weight.layout) + parts) + x_unit_bytes +
         x_groups(gemm.weight.layout) * tile_rows * float_bytes;
}

Tiling tiling_of(const CodedGemm& gemm) {
  const CodedPanels& layout = gemm.weight.layout;
  const auto tiles = static_cast<int>(blocks_of(layout.rows, tile_columns));
  Tiling tiling{.blocks = std::min(tiles, multiprocessors())};
  // Groups that have a tile of a multiprocessor's each.
  const int each = (tiles + tiling.blocks - 1) / tiling.blocks;
  const int groups = each >= 6 ? 6 : each >= 3 ? 3 : each;
  tiling.group_warps = warps / groups;
  const int room = (max_shared - other_bytes(gemm)) / warps;
  const auto units = static_cast<int>(layout.units());
  const auto rounds = [&](int slab_units) {
    const int slabs = (units + slab_units - 1) / slab_units;
    return (slabs + tiling.group_warps - 1) / tiling.group_warps * slab_units;
  };
  const bool pairs_fit = room / stage_bytes(layout, 2) > min_stages;
  tiling.slab_units = pairs_fit && rounds(2) <= rounds(1) ? 2 : 1;
  tiling.stages = std::min(max_stages, room / stage_bytes(layout, tiling.slab_units));
  return tiling;
}

}  // namespace
}  // namespace cuda

using namespace cuda;

bool coded_gemm_fits(const CodedGemm& gemm) {
  const CodedPanels& layout = gemm.weight.layout;
  return hopper_kernels_run() && gemm.rows <= max_rows && tiling_of(gemm).stages >= min_stages &&
         (!gemm.gated || layout.rows % (2 * panel_rows) == 0);
}

cudaError_t launch_coded_gemm(const CodedGemm& gemm, cudaStream_t stream) {
  const CodedPanels& layout = gemm.weight.layout;
  const Tiling tiling = tiling_of(gemm);
  Job job{};
  job.panels = static_cast<const unsigned char*>(gemm.weight.panels);
  job.row_scales = layout.group_columns > 0 ? nullptr : gemm.weight.row_scales;
  job.x = static_cast<const bf16*>(gemm.x);
  job.out = gemm.out;
  job.layout = code_layout(layout);
  job.rows = static_cast<int>(gemm.rows);
  job.n = static_cast<int>(layout.rows);
  job.k = static_cast<int>(layout.columns);
  job.slab_units = tiling.slab_units;
  job.stages = tiling.stages;
  job.stage_bytes = stage_bytes(layout, tiling.slab_units);
  job.x_row_bytes = x_row_bytes(layout);
  job.x_groups = x_groups(layout);
  job.group_warps = tiling.group_warps;
  job.gated = gemm.gated;
  job.is_f32 = gemm.out_dtype == DType::f32;
  const int shared = other_bytes(gemm) + warps * job.stages * job.stage_bytes;
  cudaError_t error = cudaSuccess;
  with_traits(layout, [&]<class Traits>(Traits) {
    auto* const kernel = stream_codes<Traits>;
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, max_shared);
    if (error != cudaSuccess) return;
    error = launch_early(
        kernel,
        {dim3(static_cast<unsigned>(tiling.blocks)), threads, static_cast<std::size_t>(shared)},
        stream, job);
  });
  return error;
}

}  // namespace troupe
