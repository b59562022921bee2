// GEMMs of one row or two with a matrix of codes, at memory bandwidth. A tile is 16 rows of the
// matrix, two panels. The warps of a block form groups; a group has a tile at a time, of which each
// warp takes every so many-th slab, some units. Slabs arrive in shared memory by a queue of the
// warp's own, and the first are requested before x is ready.
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
constexpr int max_groups = 8;
constexpr int tile_columns = 16;  // rows of the matrix of one instruction
constexpr int tile_rows = 8;      // rows of x of one instruction
constexpr int max_rows = 2;       // with more coded_decode_gemm is faster
constexpr int steps = 8;          // instructions for a unit
constexpr int max_stages = 8;     // slabs under way for a warp
constexpr int min_stages = 2;
constexpr int columns_of_unit = static_cast<int>(unit_columns);
constexpr int row_units = columns_of_unit / 8;  // of 16 bytes in a row of x of a unit
constexpr int x_unit_bytes = columns_of_unit * static_cast<int>(sizeof(bf16));
/// Shared memory of a block besides its barriers. With half of it two kernels' blocks would fit on
/// a multiprocessor: then a kernel that starts early finds two places on one and none on another.
constexpr int max_shared = 224 * 1024;
constexpr int box_alignment = 128;

struct Job {
  CUtensorMap panels;
  const float* row_scales;
  const bf16* x;
  void* out;
  CodeLayout layout;
  int rows, n, k;
  int slab_units;  // 1, 2 or 4
  int stages, stage_bytes, slab_bytes, x_row_bytes, x_sums;
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
  /// Requests the units from `unit` on of a tile's two panels; missing ones become zeros.
  __device__ __forceinline__ void request(int tile, int unit) {
    const std::uint32_t barrier = barriers_ + 8 * to_;
    const std::uint32_t to = shared_address(memory_ + to_ * job_.stage_bytes);
    if (is_elected()) {
      expect_bytes(barrier, job_.slab_bytes);
      copy_panels(to, &job_.panels, job_.gated, unit, 2 * tile, barrier, policy_);
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
  std::uint64_t policy_ = make_cache_policy(true);
};

/// Where a lane takes operands from x in shared memory; lanes whose row is missing take zeros.
struct LaneOfX {
  std::uint32_t begin;
  std::uint32_t unit_bytes;  ///< 0 for zeros
  std::uint32_t sums;        ///< [groups, 8] f32 of x, from this lane's first column of a result on
};

/// 4-bit integers are multiplied as halves (LaneCodes::raw_halves), 1,024 and more, with x as
/// halves, times int4_x_factor, and where codes are times 16 a sixteenth of that. What is too much
/// is subtracted from a group's sum: for codes less z it is 1,024 times the sum of these halves,
/// and z times that of x.
template <class Traits>
constexpr bool is_int4 = Traits::kind == CodeKind::int4;
constexpr float int4_x_factor = 0x1p-3F;
constexpr float symmetric_zero = 8.0F, bf16_offset = 128.0F;  // of offset_at
/// Sums of x that are kept for a group: both, or together if z is always 8.
template <class Traits>
constexpr int group_sums = !is_int4<Traits>    ? 0
                           : Traits::has_zeros ? 2
                                               : 1;

/// Turns eight bf16 into halves; returns their sum.
__device__ __forceinline__ float make_halves(uint4& eight, float factor) {
  float sum = 0.0F;
  auto* const words = reinterpret_cast<std::uint32_t*>(&eight);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = __bfloat1622float2(pair_of(words[i]));
    const __half2 halves = __floats2half2_rn(two.x * factor, two.y * factor);
    words[i] = *reinterpret_cast<const std::uint32_t*>(&halves);
    const float2 rounded = __half22float2(halves);
    sum += rounded.x + rounded.y;
  }
  return sum;
}

/// Turns unit `unit` of eight columns of x into halves and, in the first lane of each group of
/// columns, adds up the group's sums. Called by all lanes of a warp, which have adjacent units.
template <class Traits>
__device__ __forceinline__ void add_x(uint4& eight, int unit, int group_units, float* sums) {
  const float sixteen = unit % 2 == 0 ? 1.0F : 16.0F;
  const float of_halves = make_halves(eight, int4_x_factor / sixteen);
  float of_x = of_halves * sixteen;
  float extra = 1024.0F * of_halves + (Traits::has_zeros ? 0.0F : symmetric_zero * of_x);
  for (int distance = group_units / 2; distance > 0; distance /= 2) {
    extra += __shfl_xor_sync(~0U, extra, distance);
    if constexpr (Traits::has_zeros) of_x += __shfl_xor_sync(~0U, of_x, distance);
  }
  if (unit % group_units != 0) return;
  float* const to = sums + unit / group_units * group_sums<Traits> * tile_rows;
  to[0] = extra;
  if constexpr (Traits::has_zeros) to[tile_rows] = of_x;
}

/// Copies x to shared memory, with zeros up to whole slabs, and a unit of zeros behind it; for
/// 4-bit integers as halves, and the sums of each group of columns to sums [groups, group_sums, 8].
/// Called by all threads.
template <class Traits>
__device__ __forceinline__ LaneOfX place_x(const Job& job, unsigned char* memory, float* sums) {
  constexpr int batch = 4;                      // loads under way
  const int padded = job.x_row_bytes / 16 - 1;  // units of 16 bytes, a multiple of 32
  const int group_units = 4 * job.layout.group_chunks;
  for (int row = 0; row < job.rows; ++row) {
    for (int from = threadIdx.x; from < padded; from += threads * batch) {
      uint4 loaded[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const int unit = from + i * threads;
        loaded[i] =
            unit * 8 < job.k
                ? *reinterpret_cast<const uint4*>(job.x + std::int64_t{row} * job.k + unit * 8)
                : uint4{};
      }
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const int unit = from + i * threads;
        if (unit >= padded) break;
        if constexpr (is_int4<Traits>) {
          add_x<Traits>(loaded[i], unit, group_units, sums + row);
        }
        *reinterpret_cast<uint4*>(memory + row * job.x_row_bytes + unit * 16) = loaded[i];
      }
    }
  }
  unsigned char* const zeros = memory + job.rows * job.x_row_bytes;
  if (threadIdx.x < row_units) reinterpret_cast<uint4*>(zeros)[threadIdx.x] = uint4{};
  __syncthreads();
  const int lane = threadIdx.x % 32, row = lane % 8;
  const std::uint32_t own_sums = shared_address(sums + lane % 4 * 2);
  const std::uint32_t in_row = lane / 8 * 16;
  if (row >= job.rows) return {shared_address(zeros) + in_row, 0, own_sums};
  return {shared_address(memory + row * job.x_row_bytes) + in_row, x_unit_bytes, own_sums};
}

/// Adds the products of `units` units of two panels with those of x from unit `first` on to `sums`;
/// `group_chunks` of 32 columns share a scale.
template <class Traits, int group_chunks>
__device__ __forceinline__ void multiply_units(const CodeLayout& layout, const unsigned char* upper,
                                               const unsigned char* lower, int units,
                                               const LaneOfX& x, int first, float (&sums)[4]) {
  constexpr CodeKind kind = Traits::kind;
  constexpr bool has_zeros = Traits::has_zeros;
  constexpr int unit_groups = steps / 2 / group_chunks;
  const int own = threadIdx.x % 32 / 4;
  std::uint32_t x_at = x.begin + first * x.unit_bytes;
  constexpr int sums_bytes = tile_rows * static_cast<int>(sizeof(float));
  constexpr int group_bytes = group_sums<Traits> * sums_bytes;
  std::uint32_t x_sums = x.sums + first * unit_groups * group_bytes;
  for (int unit = 0; unit < units; ++unit) {
    LaneCodes<kind, has_zeros> top, bottom;
    top.read(upper);
    bottom.read(lower);
    float even[4] = {}, odd[4] = {};
#pragma unroll
    for (int chunk = 0; chunk < steps / 2; ++chunk) {
      const int group = chunk / group_chunks;
      const int place = group * static_cast<int>(panel_rows) + own;
      const std::uint32_t top_offset = offset_at<kind, has_zeros>(layout, upper, place);
      const std::uint32_t bottom_offset = offset_at<kind, has_zeros>(layout, lower, place);
      std::uint32_t operands[4];
      load_matrices<false>(operands, x_at + 64 * chunk);
      const auto add = [&](int step, float(&to)[4]) {
        std::uint32_t left[4];
#pragma unroll
        for (int high = 0; high < 2; ++high) {
          if constexpr (is_int4<Traits>) {
            left[2 * high] = top.raw_halves(step, high);
            left[2 * high + 1] = bottom.raw_halves(step, high);
          } else {
            left[2 * high] = operand_pair<Traits>(top, layout, upper, step, high, top_offset);
            left[2 * high + 1] =
                operand_pair<Traits>(bottom, layout, lower, step, high, bottom_offset);
          }
        }
        const std::uint32_t low = operands[step % 2 * 2], high = operands[step % 2 * 2 + 1];
        if constexpr (is_int4<Traits>) {
          mma_f16(to, left[0], left[1], left[2], left[3], low, high);
        } else {
          mma(to, left[0], left[1], left[2], left[3], low, high);
        }
      };
      add(2 * chunk, even);
      add(2 * chunk + 1, odd);
      if ((chunk + 1) % group_chunks != 0) continue;
      const float2 scales = scales_at(layout, upper, lower, place);
      float parts[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) parts[i] = even[i] + odd[i];
      if constexpr (is_int4<Traits>) {
        const float2 extra = load_shared_pair(x_sums + group * group_bytes);
#pragma unroll
        for (int i = 0; i < 4; ++i) parts[i] -= i % 2 == 0 ? extra.x : extra.y;
        if constexpr (has_zeros) {
          const float2 of_x = load_shared_pair(x_sums + group * group_bytes + sums_bytes);
          const float top_zero = __low2float(pair_of(top_offset)) - bf16_offset;
          const float bottom_zero = __low2float(pair_of(bottom_offset)) - bf16_offset;
          parts[0] = fmaf(-top_zero, of_x.x, parts[0]);
          parts[1] = fmaf(-top_zero, of_x.y, parts[1]);
          parts[2] = fmaf(-bottom_zero, of_x.x, parts[2]);
          parts[3] = fmaf(-bottom_zero, of_x.y, parts[3]);
        }
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        sums[i] = fmaf(parts[i], scales.x, sums[i]);
        sums[2 + i] = fmaf(parts[2 + i], scales.y, sums[2 + i]);
        even[i] = even[2 + i] = odd[i] = odd[2 + i] = 0.0F;
      }
    }
    upper += layout.unit_bytes;
    lower += layout.unit_bytes;
    x_at += x.unit_bytes;
    x_sums += unit_groups * group_bytes;
  }
}

template <class Traits>
__device__ __forceinline__ void multiply_units(const CodeLayout& layout, const unsigned char* upper,
                                               const unsigned char* lower, int units,
                                               const LaneOfX& x, int first, float (&sums)[4]) {
  if constexpr (Traits::are_sixteens) {
    multiply_units<Traits, 4>(layout, upper, lower, units, x, first, sums);
  } else if constexpr (Traits::kind == CodeKind::e2m1) {  // groups of MXFP4
    multiply_units<Traits, 1>(layout, upper, lower, units, x, first, sums);
  } else if (layout.group_chunks == 4) {
    multiply_units<Traits, 4>(layout, upper, lower, units, x, first, sums);
  } else if (layout.group_chunks == 2) {
    multiply_units<Traits, 2>(layout, upper, lower, units, x, first, sums);
  } else {
    multiply_units<Traits, 1>(layout, upper, lower, units, x, first, sums);
  }
}

/// Writes the elements of a tile, whose sums are those of a group's warps: [warps, 16, rows].
/// Called by a warp.
template <class Traits>
__device__ __forceinline__ void store_tile(const Job& job, int tile, const float* parts) {
  static_assert(tile_columns * max_rows <= 32);
  const int shift = job.gated ? 3 : 4, columns = 1 << shift;
  const int width = job.gated ? job.n / 2 : job.n;
  const int lane = threadIdx.x % 32;
  const int in_tile = lane & (columns - 1), of = lane >> shift, column = tile * columns + in_tile;
  if (of >= job.rows || column >= width) return;
  const auto sum_of = [&](int of_tile, int of_scale) {
    const float* const first = parts + of_tile * job.rows + of;
    float sum = *first;
    for (int w = 1; w < job.group_warps; ++w) sum += first[w * tile_columns * job.rows];
    if constexpr (is_int4<Traits>) sum *= 1.0F / int4_x_factor;
    return job.row_scales == nullptr ? sum : sum * (job.row_scales[of_scale] * Traits::rest);
  };
  float value = sum_of(in_tile, column);
  if (job.gated) value = fast_silu(value) * sum_of(in_tile + columns, width + column);
  const std::int64_t to = std::int64_t{of} * width + column;
  if (job.is_f32) {
    store(static_cast<float*>(job.out) + to, value);
  } else {
    store(static_cast<bf16*>(job.out) + to, value);
  }
}

template <class Traits>
__global__ void __launch_bounds__(threads, 1) stream_codes(const __grid_constant__ Job job) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ std::uint64_t barriers[warps][max_stages];
  let_next_kernel_start();
  if (threadIdx.x == 0) prefetch_map(job.panels);
  const int lane = threadIdx.x % 32, warp = __shfl_sync(~0U, threadIdx.x / 32, 0);
  const int group = warp / job.group_warps, member = warp % job.group_warps;
  const int tiles = (job.n + tile_columns - 1) / tile_columns;
  const int units = job.layout.units, first_unit = member * job.slab_units;
  const int unit_stride = job.group_warps * job.slab_units;
  const int stride = static_cast<int>(gridDim.x) * (warps / job.group_warps);
  const int first = static_cast<int>(blockIdx.x) + group * static_cast<int>(gridDim.x);
  const int queue_bytes = job.stages * job.stage_bytes;
  SlabsOfCodes queue(job, memory + warp * queue_bytes, barriers[warp]);
  unsigned char* const x_memory = memory + warps * queue_bytes;
  auto* const x_sums =
      reinterpret_cast<float*>(x_memory + job.rows * job.x_row_bytes + x_unit_bytes);
  float* const parts = x_sums + job.x_sums * tile_rows;

  int next_tile = first_unit < units ? first : tiles, next_unit = first_unit;
  const auto request = [&] {
    if (next_tile >= tiles) return;
    queue.request(next_tile, next_unit);
    next_unit += unit_stride;
    if (next_unit < units) return;
    next_unit = first_unit;
    next_tile += stride;
  };
  for (int i = 0; i < job.stages; ++i) request();
  wait_for_kernels_before();
  const LaneOfX x = place_x<Traits>(job, x_memory, x_sums);
  const int part_floats = tile_columns * job.rows;
  float* slot = parts + group * job.group_warps * part_floats;
  int other = warps * part_floats;  // the second set of parts is that far behind
  for (int tile = first; tile < tiles; tile += stride) {
    float sums[4] = {};
    for (int unit = first_unit; unit < units; unit += unit_stride) {
      const unsigned char* const upper = queue.wait();
      const unsigned char* const lower = upper + job.slab_units * job.layout.unit_bytes;
      multiply_units<Traits>(job.layout, upper, lower, min(job.slab_units, units - unit), x, unit,
                             sums);
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
    if (member == 0) store_tile<Traits>(job, tile, slot);
    slot += other;
    other = -other;
  }
#endif
}

/// How a GEMM is cut; it does not fit if there are no stages.
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

/// How many sums of x are kept for each row of an instruction (group_sums).
int x_sums(const CodedPanels& layout) {
  if (layout.kind != CodeKind::int4) return 0;
  const auto units = static_cast<int>(layout.units() + layout.units() % 2);
  const int sums = layout.has_zero_points ? 2 : 1;
  return sums * units * static_cast<int>(std::max<std::int64_t>(layout.groups_of_unit(), 1));
}

/// Shared memory besides the queues.
int other_bytes(const CodedGemm& gemm) {
  const auto rows = static_cast<int>(gemm.rows);
  constexpr int float_bytes = sizeof(float);
  const int parts = 2 * warps * tile_columns * float_bytes;
  return rows * (x_row_bytes(gemm.weight.layout) + parts) + x_unit_bytes +
         x_sums(gemm.weight.layout) * tile_rows * float_bytes;
}

Tiling tiling_of(const CodedGemm& gemm) {
  const CodedPanels& layout = gemm.weight.layout;
  const auto tiles = static_cast<int>(blocks_of(layout.rows, tile_columns));
  Tiling tiling{.blocks = std::min(tiles, multiprocessors())};
  const int each = (tiles + tiling.blocks - 1) / tiling.blocks;
  const auto units = static_cast<int>(layout.units());
  // The units of a tile for the warp of a group that has most of them.
  const auto most_units = [&](int group_warps, int slab_units) {
    const int slabs = (units + slab_units - 1) / slab_units;
    return (slabs + group_warps - 1) / group_warps * slab_units;
  };
  // The block has as many groups as leave no warp more to do.
  const auto units_of_warp = [&](int groups) {
    return (each + groups - 1) / groups * most_units(warps / groups, 1);
  };
  int groups = 1;
  for (int more = 2; more <= max_groups; ++more) {
    if (warps % more == 0 && units_of_warp(more) <= units_of_warp(groups)) groups = more;
  }
  tiling.group_warps = warps / groups;
  const int room = (max_shared - other_bytes(gemm)) / warps;
  // Long slabs cost least, where they give no warp more to do.
  for (const int slab_units : {4, 2, 1}) {
    const int stages = std::min(max_stages, room / stage_bytes(layout, slab_units));
    if (stages < min_stages ||
        most_units(tiling.group_warps, slab_units) > most_units(tiling.group_warps, 1))
      continue;
    tiling.slab_units = slab_units;
    tiling.stages = stages;
    break;
  }
  return tiling;
}

}  // namespace
}  // namespace cuda

using namespace cuda;

bool coded_gemm_fits(const CodedGemm& gemm) {
  const CodedPanels& layout = gemm.weight.layout;
  return hopper_kernels_run() && gemm.rows <= max_rows && tiling_of(gemm).stages > 0 &&
         (!gemm.gated || layout.rows % (2 * panel_rows) == 0);
}

cudaError_t launch_coded_gemm(const CodedGemm& gemm, cudaStream_t stream) {
  const CodedPanels& layout = gemm.weight.layout;
  const Tiling tiling = tiling_of(gemm);
  Job job{};
  if (!map_panels(layout, gemm.weight.panels, gemm.gated, tiling.slab_units, 2, job.panels)) {
    return cudaErrorInvalidValue;
  }
  job.row_scales = layout.has_row_scales() ? gemm.weight.row_scales : nullptr;
  job.x = static_cast<const bf16*>(gemm.x);
  job.out = gemm.out;
  job.layout = code_layout(layout);
  job.rows = static_cast<int>(gemm.rows);
  job.n = static_cast<int>(layout.rows);
  job.k = static_cast<int>(layout.columns);
  job.slab_units = tiling.slab_units;
  job.stages = tiling.stages;
  job.stage_bytes = stage_bytes(layout, tiling.slab_units);
  job.slab_bytes = static_cast<int>(2 * tiling.slab_units * layout.unit_bytes());
  job.x_row_bytes = x_row_bytes(layout);
  job.x_sums = x_sums(layout);
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
