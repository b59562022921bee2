// Grouped GEMMs with experts of 4-bit codes and of E4M3 on Hopper's tensor cores (wgmma). One group
// of four warps fetches units of codes, by the copy engine, and the rows of x, which are scattered,
// by its threads; two groups make numbers of the codes in registers, the left operand, and
// multiply.
#include <algorithm>

#include "models/ops/cuda/common/ptx_sm90.cuh"
#include "models/ops/cuda/common/tensor_map.hpp"
#include "models/ops/cuda/common/wgmma_registers.cuh"
#include "models/ops/cuda/moe/coded_grouped_gemm.hpp"
#include "models/ops/cuda/moe/coded_grouped_tiles.cuh"
#include "parallel/device/cuda/launch.cuh"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace cuda {
namespace {

using namespace coded_experts;

/// Shared memory of a block.
struct Places {
  unsigned char* memory;      // of the stages: [rows of x, panels]
  std::uint32_t stages;       // its address
  std::uint32_t full, empty;  // [stages] barriers
};

/// The fetching group: refills stages once the multiplying groups have released them.
template <class T>
__device__ void fetch_tiles(const Gemm& gemm, const TileTable& table, const Places& places) {
  constexpr int rows_at_once = group_threads / units, copies = T::max_rows / rows_at_once;
  constexpr std::uint32_t none = ~0U;
  const int thread = static_cast<int>(threadIdx.x) - T::multiplying, tiles = table.tiles();
  const int first = thread / units, unit = thread % units;
  const std::uint32_t to = first * row_bytes + (unit ^ (first % units)) * unit_bytes;
  const bool gated = is_gated(gemm.output);
  const auto* const x = reinterpret_cast<const uint4*>(gemm.x) + unit;
  const std::uint32_t row_units = gemm.k / 8;
  int stage = 0;
  std::uint32_t odd = 1;  // all stages are empty
  for (int number = blockIdx.x; number < tiles; number += gridDim.x) {
    const Tile tile = find_tile<T>(table, number);
    const int rows = padded_rows(tile.rows), panel = tile.column * T::panels;
    std::uint32_t row_at[copies];  // in units of 16 bytes
#pragma unroll
    for (int i = 0; i < copies; ++i) {
      const int row = first + i * rows_at_once;
      row_at[i] = none;
      if (row < tile.rows) {
        row_at[i] = static_cast<std::uint32_t>(row_of_x(gemm, tile.row + row)) * row_units;
      }
    }
    for (int of_k = 0; of_k < gemm.layout.units; ++of_k) {
      const std::uint32_t full = places.full + 8 * stage;
      const std::uint32_t at = places.stages + stage * gemm.stage_bytes;
      wait_for_bytes(places.empty + 8 * stage, odd);
      if (thread == 0) {
        expect_bytes(full, T::panels * gemm.layout.unit_bytes);
        copy_box(at + T::x_bytes, &gemm.weights, 0, of_k, gated ? 0 : panel,
                 gated ? panel / 2 : tile.expert, gated ? tile.expert : 0, full);
      }
#pragma unroll
      for (int box = 0; box < 2; ++box) {
        const std::uint32_t k = (2 * of_k + box) * units;
        const bool in_k = k + unit < row_units;
#pragma unroll
        for (int i = 0; i < copies; ++i) {
          if (i * rows_at_once >= rows) break;
          const bool there = in_k && row_at[i] != none;
          copy_async(at + box * T::box_bytes + to + i * rows_at_once * row_bytes,
                     x + (there ? row_at[i] + k : 0U), there);
        }
      }
      arrive_after_copies(full);
      if (++stage == gemm.stages) {
        stage = 0;
        odd ^= 1;
      }
    }
  }
}

/// The place in the stages that a multiplying group has reached.
struct Position {
  int stage = 0;
  std::uint32_t odd = 0;
};

/// Multiplies a tile of at most `rows` rows and writes it.
template <class T, int rows>
__device__ __forceinline__ void multiply_and_store(const Gemm& gemm, const Tile& tile,
                                                   const Places& places, int warp,
                                                   Position& position) {
  using Traits = typename T::Traits;
  constexpr CodeKind kind = Traits::kind;
  constexpr bool has_zeros = Traits::has_zeros;
  constexpr bool scales_rows = Traits::are_sixteens || kind == CodeKind::e4m3;
  // With the most rows registers hold the numbers of one chunk alone: meanwhile other groups
  // multiply.
  constexpr int buffers = rows <= 32 ? 2 : 1;
  const CodeLayout& layout = gemm.layout;
  const int lane = threadIdx.x % 32, own = lane / 4;
  float sums[rows / 2];
#pragma unroll
  for (float& sum : sums) sum = 0.0F;
  int before = -1;  // the stage whose products may not have ended
  for (int unit = 0; unit < layout.units; ++unit) {
    wait_for_bytes(places.full + 8 * position.stage, position.odd);
    show_to_products();
    const std::uint32_t x = places.stages + position.stage * gemm.stage_bytes;
    const unsigned char* const upper = places.memory + position.stage * gemm.stage_bytes +
                                       T::x_bytes + 2 * warp * layout.unit_bytes;
    const unsigned char* const lower = upper + layout.unit_bytes;
    const std::uint64_t right[2] = {tile_descriptor(x), tile_descriptor(x + T::box_bytes)};
    LaneCodes<kind, has_zeros> top, bottom;
    top.read(upper);
    bottom.read(lower);
    std::uint32_t left[buffers][2][4];  // of chunks of 32 columns, in turn
#pragma unroll
    for (int chunk = 0; chunk < steps / 2; ++chunk) {
      wait_for_products<buffers - 1>();  // those that read these registers
      if (chunk == buffers - 1 && before >= 0 && lane == 0) arrive(places.empty + 8 * before);
      auto& numbers = left[chunk % buffers];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if constexpr (kind == CodeKind::e4m3) {
#pragma unroll
          for (int high = 0; high < 2; ++high) {
            numbers[i][2 * high] = top.pair(2 * chunk + i, high, 0);
            numbers[i][2 * high + 1] = bottom.pair(2 * chunk + i, high, 0);
          }
          continue;
        }
        const int group = Traits::are_sixteens     ? 2 * chunk + i
                          : kind == CodeKind::e2m1 ? chunk
                                                   : chunk >> layout.group_chunks / 2;
        const int place = group * 8 + own;
        const std::uint32_t top_factor = factor_at<kind>(layout, upper, place);
        const std::uint32_t bottom_factor = factor_at<kind>(layout, lower, place);
        const std::uint32_t top_offset = offset_at<kind, has_zeros>(layout, upper, place);
        const std::uint32_t bottom_offset = offset_at<kind, has_zeros>(layout, lower, place);
#pragma unroll
        for (int high = 0; high < 2; ++high) {
          numbers[i][2 * high] = number_pair(top, 2 * chunk + i, high, top_offset, top_factor);
          numbers[i][2 * high + 1] =
              number_pair(bottom, 2 * chunk + i, high, bottom_offset, bottom_factor);
        }
      }
      pin(sums);
      open_products();
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int step = 2 * chunk + i;
        wgmma(numbers[i], right[step / 4] + 2 * (step % 4), 1, sums);
      }
      close_products();
    }
    before = position.stage;
    if (++position.stage == gemm.stages) {
      position.stage = 0;
      position.odd ^= 1;
    }
  }
  std::int32_t targets[(rows + 31) / 32];
#pragma unroll
  for (int i = 0; i < (rows + 31) / 32; ++i) {
    const int row = 32 * i + lane, sorted = tile.row + row;
    targets[i] = gemm.scatter && row < tile.rows ? gemm.source[sorted] : sorted;
  }
  wait_for_products<0>();
  if (lane == 0) arrive(places.empty + 8 * before);
  pin(sums);
  const int first_row = (tile.column * T::panels + 2 * warp) * 8;
  if constexpr (scales_rows) {
    scale_rows<Traits>(gemm, tile, first_row, sums);
  } else if constexpr (kind == CodeKind::e2m1) {
#pragma unroll
    for (float& sum : sums) sum *= e2m1_rest;
  }
  store_sums<rows>(gemm, tile, first_row, targets, sums);
}

template <class T>
__device__ void multiply_tiles(const Gemm& gemm, const TileTable& table, const Places& places) {
  const int warp = __shfl_sync(~0U, threadIdx.x / 32, 0);
  const int tiles = table.tiles();
  Position position;
  for (int number = blockIdx.x; number < tiles; number += gridDim.x) {
    const Tile tile = find_tile<T>(table, number);
    const auto multiply = [&]<int rows>() {
      multiply_and_store<T, rows>(gemm, tile, places, warp, position);
    };
    const int rows = padded_rows(tile.rows);
    if (rows == 16) {
      multiply.template operator()<16>();
    } else if (rows == 32) {
      multiply.template operator()<32>();
    } else if constexpr (T::max_rows > 32) {
      if (rows == 64) {
        multiply.template operator()<64>();
      } else if (rows == 80) {
        multiply.template operator()<80>();
      } else {
        multiply.template operator()<128>();
      }
    }
  }
}

template <class T>
__global__ void __launch_bounds__(T::threads, T::blocks)
    coded_grouped_gemm_kernel(const __grid_constant__ Gemm gemm) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char shared[];
  __shared__ std::uint64_t full[max_stages], empty[max_stages];
  const std::uint32_t begin = shared_address(shared);
  const std::uint32_t stages_at = (begin + alignment - 1) / alignment * alignment;
  const Places places{shared + (stages_at - begin), stages_at, shared_address(full),
                      shared_address(empty)};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < gemm.stages; ++stage) {
      open_barrier(places.full + 8 * stage, 1 + group_threads);
      open_barrier(places.empty + 8 * stage, T::multiplying / 32);
    }
    show_barriers();
  }
  begin_early_kernel();
  auto* const tables =
      reinterpret_cast<std::int32_t*>(places.memory + gemm.stages * gemm.stage_bytes);
  const int columns = gemm.column_tiles;
  const TileTable table = make_tile_table(
      [&](int expert) { return gemm.offsets[expert]; }, gemm.experts, tables,
      [columns](int rows) { return (rows + T::max_rows - 1) / T::max_rows * columns; });
  if (threadIdx.x >= T::multiplying) {
    if constexpr (T::fetching_registers > 0) leave_registers<T::fetching_registers>();
    fetch_tiles<T>(gemm, table, places);
    wait_for_copies<0>();
  } else {
    if constexpr (T::multiplying_registers > 0) take_registers<T::multiplying_registers>();
    multiply_tiles<T>(gemm, table, places);
  }
#endif
}

/// Describes experts' panels to the copy engine in boxes of `count` panels; of a gated matrix a
/// panel of the first half is followed by the one of the second half.
bool map_experts(const CodedGroupedGemm& wanted, int count, CUtensorMap& map) {
  const CodedPanels& layout = wanted.layout;
  const auto unit = static_cast<std::uint64_t>(layout.unit_bytes()) / 8;
  const auto of_row = static_cast<std::uint64_t>(layout.units()), all = of_row * unit;
  const auto total = static_cast<std::uint64_t>(layout.panels());
  const auto experts = static_cast<std::uint64_t>(wanted.experts);
  const auto box = static_cast<std::uint32_t>(count), width = static_cast<std::uint32_t>(unit);
  TiledTensor tensor = wanted.gated ? TiledTensor{wanted.panels,
                                                  {unit, of_row, 2, total / 2, experts},
                                                  {unit, total / 2 * all, all, total * all},
                                                  {width, 1, 2, box / 2, 1}}
                                    : TiledTensor{wanted.panels,
                                                  {unit, of_row, total, experts, 1},
                                                  {unit, all, total * all, experts * total * all},
                                                  {width, 1, box, 1, 1}};
  tensor.swizzled = false;
  tensor.element_bytes = 8;
  return make_tensor_map(tensor, map);
}

template <class T>
cudaError_t launch(const CodedGroupedGemm& wanted, cudaStream_t stream) {
  Gemm gemm{};
  if (!map_experts(wanted, T::panels, gemm.weights)) return cudaErrorInvalidValue;
  gemm.x = static_cast<const bf16*>(wanted.x);
  gemm.offsets = wanted.offsets;
  gemm.source = wanted.source;
  gemm.row_scales = wanted.row_scales;
  gemm.out = wanted.out;
  gemm.layout = code_layout(wanted.layout);
  gemm.bias = wanted.bias;
  gemm.output = wanted.clamped                   ? Output::clamped
                : wanted.gated                   ? Output::gated
                : wanted.out_dtype == DType::f32 ? Output::f32
                                                 : Output::bf16;
  gemm.k = static_cast<std::uint32_t>(wanted.layout.columns);
  gemm.top_k = static_cast<std::uint32_t>(wanted.top_k);
  gemm.experts = static_cast<int>(wanted.experts);
  gemm.width = static_cast<int>(wanted.gated ? wanted.layout.rows / 2 : wanted.layout.rows);
  gemm.column_tiles = static_cast<int>(blocks_of(wanted.layout.panels(), T::panels));
  gemm.gather = wanted.gather;
  gemm.scatter = wanted.scatter;
  const int bytes = T::x_bytes + T::panels * gemm.layout.unit_bytes;
  gemm.stage_bytes = (bytes + alignment - 1) / alignment * alignment;
  const int tables = static_cast<int>(tile_table_bytes(wanted.experts));
  gemm.stages =
      std::min(max_stages, (max_shared / T::blocks - alignment - tables) / gemm.stage_bytes);
  auto* const kernel = coded_grouped_gemm_kernel<T>;
  const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, max_shared);
  if (allowed != cudaSuccess) return allowed;
  const auto shared = static_cast<std::size_t>(alignment + gemm.stages * gemm.stage_bytes + tables);
  const auto blocks = static_cast<unsigned>(T::blocks * multiprocessors());
  return launch_early(kernel, {dim3(blocks), T::threads, shared}, stream, gemm);
}

/// Calls body with the CodeTraits of experts' panels.
template <class Body>
void with_expert_traits(const CodedPanels& panels, const Body& body) {
  if (panels.kind == CodeKind::e4m3) return body(CodeTraits<CodeKind::e4m3, false>());
  if (panels.kind == CodeKind::e2m1) {
    return panels.group_columns == nvfp4_columns ? body(CodeTraits<CodeKind::e2m1, false, true>())
                                                 : body(CodeTraits<CodeKind::e2m1, false>());
  }
  if (panels.has_zero_points) return body(CodeTraits<CodeKind::int4, true>());
  body(CodeTraits<CodeKind::int4, false>());
}

}  // namespace
}  // namespace cuda

using namespace cuda;

cudaError_t launch_coded_grouped_gemm(const CodedGroupedGemm& gemm, cudaStream_t stream) {
  // Few rows are bound by the codes' bytes: small tiles spread them over the device.
  const std::int64_t met = std::min(gemm.experts, gemm.assignments);
  const std::int64_t large_tiles = met * blocks_of(gemm.layout.panels(), 3 * group_panels);
  const bool are_few = large_tiles < 2 * multiprocessors() && gemm.assignments <= 8 * met;
  cudaError_t error = cudaSuccess;
  with_expert_traits(gemm.layout, [&]<class Traits>(Traits) {
    error = are_few ? launch<Small<Traits>>(gemm, stream) : launch<Large<Traits>>(gemm, stream);
  });
  return error;
}

}  // namespace troupe
