// GEMMs of a decode batch's rows with a matrix of codes on Hopper's tensor cores (wgmma): one warp
// brings units of codes and columns of x to shared memory, groups of four warps make codes the left
// operand in registers.
#include <algorithm>
#include <type_traits>

#include "models/ops/cuda/common/cluster.cuh"
#include "models/ops/cuda/common/hopper.hpp"
#include "models/ops/cuda/common/ptx_sm90.cuh"
#include "models/ops/cuda/common/tensor_map.hpp"
#include "models/ops/cuda/common/wgmma_registers.cuh"
#include "models/ops/cuda/gemm/code_fragments.cuh"
#include "models/ops/cuda/gemm/coded_decode_gemm.hpp"
#include "models/ops/cuda/gemm/decode_output.cuh"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace cuda {
namespace {

constexpr int groups = 3;  // of four warps, each a warpgroup
constexpr int group_threads = 128, consumers = groups * group_threads, threads = consumers + 32;
constexpr int group_rows = 64;  // of the weight
constexpr int group_panels = group_rows / 8;
constexpr int steps = 8;  // of 16 columns in a unit
constexpr int box_columns = 64;
constexpr int alignment = 1024;
constexpr int max_stages = 9;
constexpr int max_shared = 226 * 1024;
constexpr int max_parts = 4;

/// A block multiplies `rows` rows of x with 64 rows of the weight for each group, or, with
/// `shares_rows`, with 64 in all, of which each group takes every third unit of k.
template <class Traits_, int rows_, bool shares_rows_>
struct Tiling {
  using Traits = Traits_;
  static constexpr int rows = rows_;
  static constexpr bool shares_rows = shares_rows_;
  static constexpr int panels = shares_rows ? group_panels : groups * group_panels;
  static constexpr int box_bytes = rows * box_columns * static_cast<int>(sizeof(bf16));
  static constexpr int x_bytes = 2 * box_bytes;  // of a unit
  static constexpr int sums = rows / 2;          // per thread
  static constexpr int quads = rows / 8;
};

struct Gemm {
  CUtensorMap weight, x;
  const float* row_scales;
  DecodeOutput to;
  CodeLayout layout;
  int panels;  // of the weight
  int stages, stage_bytes;
};

/// The result of this block's rows of x.
template <class T>
__device__ __forceinline__ DecodeOutput output_of(const Gemm& gemm) {
  DecodeOutput to = gemm.to;
  to.skip_rows(static_cast<int>(blockIdx.z) * T::rows, T::rows);
  return to;
}

/// Brings this block's part of k, `count` units from `first`. Called by a thread.
template <class T>
__device__ void copy_units(const Gemm& gemm, int first, int count, std::uint32_t stages_at,
                           std::uint32_t full, std::uint32_t empty) {
  const bool gated = gemm.to.output == Output::gated;
  // Other blocks of rows read the same weights again.
  const std::uint64_t policy = make_cache_policy(gridDim.z == 1);
  const auto copy_codes = [&](int unit, int stage) {
    expect_bytes(full + 8 * stage, T::x_bytes + T::panels * gemm.layout.unit_bytes);
    copy_panels(stages_at + stage * gemm.stage_bytes + T::x_bytes, &gemm.weight, gated,
                first + unit, static_cast<int>(blockIdx.y) * T::panels, full + 8 * stage, policy);
  };
  const auto copy_x = [&](int unit, int stage) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      copy_box(stages_at + stage * gemm.stage_bytes + half * T::box_bytes, &gemm.x,
               ((first + unit) * 2 + half) * box_columns, static_cast<int>(blockIdx.z) * T::rows, 0,
               0, 0, full + 8 * stage);
    }
  };
  const int ahead = min(count, gemm.stages);
  for (int unit = 0; unit < ahead; ++unit) copy_codes(unit, unit);
  wait_for_kernels_before();
  for (int unit = 0; unit < ahead; ++unit) copy_x(unit, unit);
  int stage = 0;
  std::uint32_t odd = 0;
  for (int unit = ahead; unit < count; ++unit) {
    wait_for_bytes(empty + 8 * stage, odd);
    copy_codes(unit, stage);
    copy_x(unit, stage);
    if (++stage == gemm.stages) {
      stage = 0;
      odd ^= 1;
    }
  }
}

/// Adds the products of a unit, of which this warp has two panels, to `sums`; `group_chunks` of 32
/// columns share a scale.
template <class T, int group_chunks>
__device__ __forceinline__ void multiply_unit(const CodeLayout& layout, const unsigned char* upper,
                                              std::uint32_t x, float (&sums)[T::sums],
                                              float (&parts)[T::sums]) {
  using Traits = typename T::Traits;
  constexpr CodeKind kind = Traits::kind;
  constexpr bool has_zeros = Traits::has_zeros;
  const unsigned char* const lower = upper + layout.unit_bytes;
  const int own = threadIdx.x % 32 / 4;
  LaneCodes<kind, has_zeros> top, bottom;
  top.read(upper);
  bottom.read(lower);
  std::uint32_t top_offset = offset_at<kind, has_zeros>(layout, upper, own);
  std::uint32_t bottom_offset = offset_at<kind, has_zeros>(layout, lower, own);
  const std::uint64_t right[2] = {tile_descriptor(x), tile_descriptor(x + T::box_bytes)};
  int place = own;
#pragma unroll
  for (int chunk = 0; chunk < steps / 2; ++chunk) {
    std::uint32_t left[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int step = 2 * chunk + i;
#pragma unroll
      for (int high = 0; high < 2; ++high) {
        left[i][2 * high] = operand_pair<Traits>(top, layout, upper, step, high, top_offset);
        left[i][2 * high + 1] =
            operand_pair<Traits>(bottom, layout, lower, step, high, bottom_offset);
      }
    }
    pin(parts);
    open_products();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int step = 2 * chunk + i;
      wgmma(left[i], right[step / 4] + 2 * (step % 4), chunk % group_chunks > 0 || i > 0 ? 1 : 0,
            parts);
    }
    close_products();
    if ((chunk + 1) % group_chunks != 0) continue;
    const float2 scales = scales_at(layout, upper, lower, place);
    place += static_cast<int>(panel_rows);
    if (has_zeros && chunk + 1 < steps / 2) {
      top_offset = offset_at<kind, has_zeros>(layout, upper, place);
      bottom_offset = offset_at<kind, has_zeros>(layout, lower, place);
    }
    wait_for_products<0>();
    pin(parts);
#pragma unroll
    for (int i = 0; i < T::sums; i += 4) {
      sums[i] = fmaf(parts[i], scales.x, sums[i]);
      sums[i + 1] = fmaf(parts[i + 1], scales.x, sums[i + 1]);
      sums[i + 2] = fmaf(parts[i + 2], scales.y, sums[i + 2]);
      sums[i + 3] = fmaf(parts[i + 3], scales.y, sums[i + 3]);
    }
  }
}

/// Multiplies sums as store_quad takes them by the scales of whole rows.
template <class T>
__device__ __forceinline__ float4 scaled(const Gemm& gemm, int at, float4 sums) {
  if (gemm.row_scales == nullptr) return sums;
  const bool gated = gemm.to.output == Output::gated;
  const int upper = (gated ? at / 2 : at) + threadIdx.x % 32 / 4;
  const int lower = gated ? upper + gemm.to.width : upper + 8;
  const int last = 8 * gemm.panels - 1;
  const float top = gemm.row_scales[min(upper, last)] * T::Traits::rest;
  const float bottom = gemm.row_scales[min(lower, last)] * T::Traits::rest;
  return {sums.x * top, sums.y * top, sums.z * bottom, sums.w * bottom};
}

/// Grid: parts of k, one cluster of them for each tile of the weight's rows; tiles; tiles of x.
template <class T>
__global__ void __launch_bounds__(threads, 1) multiply_decoded(const __grid_constant__ Gemm gemm) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char shared[];
  __shared__ std::uint64_t full[max_stages], empty[max_stages];
  const std::uint32_t begin = shared_address(shared);
  const std::uint32_t stages_at = (begin + alignment - 1) / alignment * alignment;
  unsigned char* const memory = shared + (stages_at - begin);
  if (threadIdx.x == 0) {
    for (std::uint64_t& barrier : full) open_barrier(shared_address(&barrier));
    for (std::uint64_t& barrier : empty) {
      open_barrier(shared_address(&barrier), T::shares_rows ? 4 : 4 * groups);
    }
    show_barriers();
  }
  __syncthreads();
  const int parts = gridDim.x, part = blockIdx.x;
  const int first = gemm.layout.units * part / parts;
  const int count = gemm.layout.units * (part + 1) / parts - first;
  if (threadIdx.x >= consumers) {
    if (threadIdx.x == consumers) {
      copy_units<T>(gemm, first, count, stages_at, shared_address(full), shared_address(empty));
    }
    __syncwarp();
    // Not before its copies are issued: blocks of the next kernel would crowd on multiprocessors
    // that have none of this one.
    let_next_kernel_start();
    if (parts == 1) return;
    meet_in_cluster();
    meet_in_cluster();
    return;
  }
  const int group = __shfl_sync(~0U, threadIdx.x / group_threads, 0);
  const int warp = threadIdx.x % group_threads / 32;
  float sums[T::sums], products[T::sums];
#pragma unroll
  for (int i = 0; i < T::sums; ++i) sums[i] = products[i] = 0.0F;
  const auto multiply = [&](const unsigned char* codes, std::uint32_t x) {
    const CodeLayout& layout = gemm.layout;
    if constexpr (T::Traits::are_sixteens) {
      return multiply_unit<T, 4>(layout, codes, x, sums, products);
    } else if constexpr (T::Traits::kind == CodeKind::e2m1) {
      return multiply_unit<T, 1>(layout, codes, x, sums, products);  // groups of MXFP4
    }
    if (layout.group_chunks == 4) return multiply_unit<T, 4>(layout, codes, x, sums, products);
    if (layout.group_chunks == 2) return multiply_unit<T, 2>(layout, codes, x, sums, products);
    multiply_unit<T, 1>(layout, codes, x, sums, products);
  };
  constexpr int stride = T::shares_rows ? groups : 1;
  const int own_panel = 2 * warp + (T::shares_rows ? 0 : group * group_panels);
  int stage = T::shares_rows ? group : 0;  // of a multiple of three, if groups share rows
  std::uint32_t odd = 0;
  for (int unit = stage; unit < count; unit += stride) {
    wait_for_bytes(shared_address(full) + 8 * stage, odd);
    const unsigned char* const at = memory + stage * gemm.stage_bytes;
    multiply(at + T::x_bytes + own_panel * gemm.layout.unit_bytes,
             stages_at + stage * gemm.stage_bytes);
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(shared_address(empty) + 8 * stage);
    stage += stride;
    if (stage >= gemm.stages) {
      stage -= gemm.stages;
      odd ^= 1;
    }
  }
  const DecodeOutput to = output_of<T>(gemm);
  const int tile =
      static_cast<int>(blockIdx.y) * (T::shares_rows ? 1 : groups) + (T::shares_rows ? 0 : group);
  const int at = (tile * 4 + warp) * 16;
  const auto quad_of = [&](int quad) {
    return float4{sums[4 * quad], sums[4 * quad + 1], sums[4 * quad + 2], sums[4 * quad + 3]};
  };
  if (parts == 1 && !T::shares_rows) {
#pragma unroll
    for (int quad = 0; quad < T::quads; ++quad) {
      store_quad(to, quad, at, scaled<T>(gemm, at, quad_of(quad)));
    }
    return;
  }
  // The stages' memory is reused for the sums once no group reads it: [quads][consumers].
  auto* const own = reinterpret_cast<float4*>(memory);
  const auto meet_consumers = [] { asm volatile("bar.sync 1, %0;" ::"n"(consumers) : "memory"); };
  meet_consumers();
#pragma unroll
  for (int quad = 0; quad < T::quads; ++quad) own[quad * consumers + threadIdx.x] = quad_of(quad);
  if (parts > 1) {
    meet_in_cluster();
  } else {
    meet_consumers();
  }
  // Groups that have the same rows share the quads.
  const int sharers = T::shares_rows ? parts * groups : parts;
  const int sharer = T::shares_rows ? part * groups + group : part;
  const int end = T::quads * (sharer + 1) / sharers;
  for (int quad = T::quads * sharer / sharers; quad < end; ++quad) {
    float4 sum{};
    for (int other = 0; other < parts; ++other) {
      const float4* const theirs = (parts > 1 ? in_block(own, other) : own) + quad * consumers;
      for (int g = 0; g < (T::shares_rows ? groups : 1); ++g) {
        const float4 one =
            theirs[T::shares_rows ? g * group_threads + threadIdx.x % group_threads : threadIdx.x];
        sum = {sum.x + one.x, sum.y + one.y, sum.z + one.z, sum.w + one.w};
      }
    }
    store_quad(to, quad, at, scaled<T>(gemm, at, sum));
  }
  if (parts > 1) meet_in_cluster();  // no block ends while others read its sums
#endif
}

template <class T>
cudaError_t launch(const CodedGemm& wanted, int parts, cudaStream_t stream) {
  const CodedPanels& layout = wanted.weight.layout;
  const auto k = static_cast<std::uint64_t>(layout.columns);
  const auto rows = static_cast<std::uint64_t>(wanted.rows);
  const TiledTensor x{wanted.x,
                      {k, rows, 1, 1, 1},
                      {k, rows * k, rows * k, rows * k},
                      {box_columns, T::rows, 1, 1, 1}};
  Gemm gemm{};
  if (!make_tensor_map(x, gemm.x) ||
      !map_panels(layout, wanted.weight.panels, wanted.gated, 1, T::panels, gemm.weight)) {
    return cudaErrorInvalidValue;
  }
  gemm.row_scales = layout.has_row_scales() ? wanted.weight.row_scales : nullptr;
  gemm.to = {.out = wanted.out,
             .rows = static_cast<int>(wanted.rows),
             .width = static_cast<int>(wanted.gated ? layout.rows / 2 : layout.rows),
             .output = wanted.gated                     ? Output::gated
                       : wanted.out_dtype == DType::f32 ? Output::f32
                                                        : Output::bf16};
  gemm.layout = code_layout(layout);
  gemm.panels = static_cast<int>(layout.panels());
  const int bytes = T::x_bytes + T::panels * gemm.layout.unit_bytes;
  gemm.stage_bytes = (bytes + alignment - 1) / alignment * alignment;
  const int needed = T::quads * consumers * static_cast<int>(sizeof(float4));
  gemm.stages = std::min(max_stages, (max_shared - alignment) / gemm.stage_bytes);
  // Each stage is always of the same group, which sees its barrier open every time. One that came
  // to a stage of another group's could take the barrier of the last unit but one for its own.
  if (T::shares_rows) gemm.stages -= gemm.stages % groups;
  const int shared = alignment + std::max(needed, gemm.stages * gemm.stage_bytes);
  auto* const kernel = multiply_decoded<T>;
  const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, max_shared);
  if (allowed != cudaSuccess) return allowed;
  const dim3 grid(static_cast<unsigned>(parts), blocks_of(layout.panels(), T::panels),
                  blocks_of(wanted.rows, T::rows));
  return launch_early_as(dim3(static_cast<unsigned>(parts)), kernel,
                         {grid, threads, static_cast<std::size_t>(shared)}, stream, gemm);
}

template <class Traits, bool shares_rows>
cudaError_t launch_rows(const CodedGemm& gemm, int parts, cudaStream_t stream) {
  if (gemm.rows <= 16) return launch<Tiling<Traits, 16, shares_rows>>(gemm, parts, stream);
  if (gemm.rows <= 32) return launch<Tiling<Traits, 32, shares_rows>>(gemm, parts, stream);
  return launch<Tiling<Traits, 64, shares_rows>>(gemm, parts, stream);
}

}  // namespace
}  // namespace cuda

using namespace cuda;

bool coded_decode_gemm_fits(const CodedGemm& gemm) {
  const bool splits = gemm.weight.layout.rows % (2 * panel_rows) == 0;
  return hopper_kernels_run() && (!gemm.gated || (splits && gemm.out_dtype == DType::bf16));
}

cudaError_t launch_coded_decode_gemm(const CodedGemm& gemm, cudaStream_t stream) {
  const CodedPanels& layout = gemm.weight.layout;
  // One wave of blocks, if possible.
  const unsigned large_tiles = blocks_of(layout.panels(), groups * group_panels);
  const auto tiles = static_cast<std::int64_t>(blocks_of(layout.panels(), group_panels)) *
                     blocks_of(gemm.rows, 64);
  const bool shares_rows = large_tiles <= static_cast<unsigned>(multiprocessors() * 3 / 4);
  const std::int64_t most =
      std::min({multiprocessors() / tiles, layout.units() / 8, std::int64_t{max_parts}});
  const int parts = shares_rows ? static_cast<int>(std::max<std::int64_t>(most, 1)) : 1;
  cudaError_t error = cudaSuccess;
  with_traits(layout, [&]<class Traits>(Traits) {
    error = shares_rows ? launch_rows<Traits, true>(gemm, parts, stream)
                        : launch_rows<Traits, false>(gemm, parts, stream);
  });
  return error;
}

}  // namespace troupe
