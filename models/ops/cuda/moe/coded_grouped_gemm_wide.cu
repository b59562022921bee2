// Grouped GEMMs with experts of 4-bit codes and of E4M3, for many rows, on Hopper's tensor cores
// (wgmma). One group of four warps fetches units of codes, by the copy engine, and the rows of x,
// which are scattered, by its threads. Two groups make numbers of the codes in registers, the left
// operand: of 32 columns of k while products of the 32 before run.
#include <algorithm>

#include "models/ops/cuda/common/ptx_sm90.cuh"
#include "models/ops/cuda/common/wgmma_registers.cuh"
#include "models/ops/cuda/moe/coded_grouped_gemm_wide.hpp"
#include "models/ops/cuda/moe/coded_grouped_tiles.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

using namespace coded_experts;

constexpr int code_stages = 3;    // of units of codes
constexpr int step_columns = 64;  // a step of k: half a unit

template <class Traits>
struct Wide : Tiling<Traits, 2, 256, 1> {
  static constexpr int fetching_registers = 56, multiplying_registers = 224;  // per thread
  static_assert((fetching_registers + 2 * multiplying_registers) * group_threads <= 1 << 16);
  static constexpr int passing_rows = 128;  // of the output, on their way out at once
  static constexpr int passing_bytes = passing_rows * row_bytes;               // of a group
  static constexpr int targets_bytes = Wide::max_rows * sizeof(std::int32_t);  // of a group
};

/// Shared memory of a block.
struct Places {
  unsigned char* codes;                   // [code_stages] of the units of a tile's panels
  std::int32_t* targets;                  // [groups][max_rows]: where rows go
  std::uint32_t x;                        // [gemm.stages] of rows of x
  std::uint32_t passing;                  // [groups][passing_rows]
  std::uint32_t codes_at;                 // the address of `codes`
  std::uint32_t x_full, x_empty;          // [gemm.stages] barriers
  std::uint32_t codes_full, codes_empty;  // [code_stages] barriers
};

__device__ __forceinline__ int steps_of(const Gemm& gemm) {
  return static_cast<int>((gemm.k + step_columns - 1) / step_columns);
}

/// The rows that a tile's instructions multiply.
__device__ __forceinline__ int padded_rows(int rows) { return (rows + 63) / 64 * 64; }

/// The fetching group: refills stages once the multiplying groups have released them.
template <class T>
__device__ void fetch_tiles(const Gemm& gemm, const TileTable& table, const Places& places) {
  const int thread = static_cast<int>(threadIdx.x) - T::multiplying, tiles = table.tiles();
  const int k_steps = steps_of(gemm);
  RowCopies<T> copies(gemm, thread);
  Position of_x{0, 1}, of_codes{0, 1};  // all stages are empty
  for (int number = blockIdx.x; number < tiles; number += gridDim.x) {
    const Tile tile = find_tile<T>(table, number);
    const int rows = padded_rows(tile.rows);
    copies.find(tile);
    for (int step = 0; step < k_steps; ++step) {
      if (thread == 0 && step % 2 == 0) {
        const std::uint32_t full = places.codes_full + 8 * of_codes.stage;
        wait_for_bytes(places.codes_empty + 8 * of_codes.stage, of_codes.odd);
        expect_bytes(full, T::panels * gemm.layout.unit_bytes);
        copy_unit<T>(gemm, tile, step / 2, places.codes_at + of_codes.stage * gemm.stage_bytes,
                     full);
        of_codes.advance(code_stages);
      }
      wait_for_bytes(places.x_empty + 8 * of_x.stage, of_x.odd);
      copies.copy(places.x + of_x.stage * T::box_bytes, rows);
      arrive_after_copies(places.x_full + 8 * of_x.stage);
      of_x.advance(gemm.stages);
    }
  }
}

/// Waits for the other warps of a multiplying group.
__device__ __forceinline__ void meet_group(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(group_threads) : "memory");
}

/// Adds the products of 16 columns to sums of `count` / 2 rows, of at most 128 at once.
template <int count>
__device__ __forceinline__ void multiply_step(const std::uint32_t (&left)[4], std::uint64_t right,
                                              bool adds, float (&sums)[count]) {
  constexpr int at_once = 64;
  if constexpr (count <= at_once) {
    wgmma(left, right, adds, sums);
  } else {
    constexpr std::uint64_t rows_after = 2 * at_once * row_bytes >> 4;
    wgmma(left, right, adds, reinterpret_cast<float(&)[at_once]>(sums));
    wgmma(left, right + rows_after, adds,
          reinterpret_cast<float(&)[count - at_once]>(sums[at_once]));
  }
}

/// Writes a group's sums, when all of its products have ended: through shared memory, so that whole
/// lines are written.
template <class T>
__device__ __forceinline__ void store_tile(const Gemm& gemm, const Tile& tile, int warp,
                                           std::uint32_t passing, const std::int32_t* targets,
                                           const float (&sums)[T::max_rows / 2]) {
  constexpr int at_once = T::passing_rows;
  const int lane = threadIdx.x % 32, group = warp / 4, of_group = warp % 4;
  const int thread = static_cast<int>(threadIdx.x) % group_threads;
  const bool gated = is_gated(gemm.output);
  const int group_columns = gated ? 32 : 64;  // of the output
  const int first_column = (tile.column * T::groups + group) * group_columns;
  const GatedColumn own_column(gemm, tile, first_column + of_group * 8 + lane / 4);
#pragma unroll
  for (int from = 0; from < T::max_rows; from += at_once) {
    if (from >= tile.rows) break;
    if (gated) {
#pragma unroll
      for (int row = 0; row < at_once; row += 32) {
        std::uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* const own = sums + (from + row) / 2 + 4 * i;
          pairs[i] =
              round_pair(own_column.output(own[0], own[2]), own_column.output(own[1], own[3]));
        }
        store_transposed(
            passing + (row + lane) * row_bytes + (of_group ^ lane % units) * unit_bytes, pairs);
      }
    } else {
#pragma unroll
      for (int row = 0; row < at_once; row += 16) {
        std::uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* const own = sums + (from + row) / 2 + 2 * i;
          pairs[i] = round_pair(own[0], own[1]);
        }
        const int unit = 2 * of_group + lane / 8 % 2;
        store_transposed(passing + (row + lane / 16 * 8 + lane % 8) * row_bytes +
                             (unit ^ lane % units) * unit_bytes,
                         pairs);
      }
    }
    meet_group(group);
    const int width_units = group_columns / 8, unit = thread % width_units;
    const int column = first_column + unit * 8, rows_at_once = group_threads / width_units;
#pragma unroll
    for (int i = 0; i < at_once / 16; ++i) {
      const int row = thread / width_units + i * rows_at_once;
      if (i * rows_at_once >= at_once) break;
      const std::size_t to = targets[from + row];
      if (from + row < tile.rows && column < gemm.width) {
        *reinterpret_cast<uint4*>(static_cast<bf16*>(gemm.out) + to * gemm.width + column) =
            load_shared(passing + row * row_bytes + (unit ^ row % units) * unit_bytes);
      }
    }
    meet_group(group);  // before others are on their way
  }
}

/// The same for fp32, written directly.
template <int rows>
__device__ __forceinline__ void store_floats(const Gemm& gemm, const Tile& tile, int at,
                                             const float (&sums)[rows / 2]) {
  const int lane = threadIdx.x % 32, column = at + lane / 4;
#pragma unroll
  for (int i = 0; i < rows / 2; i += 2) {
    __syncwarp();  // so that few places are in registers at once
#pragma unroll
    for (int next = 0; next < 2; ++next) {
      const int row = i / 4 * 8 + lane % 4 * 2 + next, of_sum = column + i / 2 % 2 * 8;
      if (row < tile.rows && of_sum < gemm.width) {
        const std::size_t to = gemm.scatter ? gemm.source[tile.row + row] : tile.row + row;
        static_cast<float*>(gemm.out)[to * gemm.width + of_sum] = sums[i + next];
      }
    }
  }
}

/// Computes a group's sums of a tile of at most `rows` rows.
template <class T, int rows>
__device__ __forceinline__ void multiply(const Gemm& gemm, const Places& places, int warp,
                                         Position& of_x, Position& of_codes,
                                         float (&sums)[rows / 2]) {
  using Traits = typename T::Traits;
  constexpr int chunks = 2;  // of 32 columns in a step
  const int lane = threadIdx.x % 32, k_steps = steps_of(gemm);
  std::uint32_t left[chunks][2][4];
  int before = -1;  // the stage whose products may not have ended
  for (int step = 0; step < k_steps; ++step) {
    const int half = step % 2;
    if (half == 0) wait_for_bytes(places.codes_full + 8 * of_codes.stage, of_codes.odd);
    const unsigned char* const upper =
        places.codes + of_codes.stage * gemm.stage_bytes + 2 * warp * gemm.layout.unit_bytes;
    const unsigned char* const lower = upper + gemm.layout.unit_bytes;
    LaneCodes<Traits::kind, Traits::has_zeros> top, bottom;
    top.read_half(upper, half);
    bottom.read_half(lower, half);
    wait_for_bytes(places.x_full + 8 * of_x.stage, of_x.odd);
    show_to_products();
    const std::uint64_t right = tile_descriptor(places.x + of_x.stage * T::box_bytes);
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) {
      wait_for_products<1>();  // those that read the same registers have ended
      if (chunk == 1 && before >= 0 && lane == 0) arrive(places.x_empty + 8 * before);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        make_numbers<Traits>(gemm.layout, top, bottom, upper, lower, 2 * chunk + i,
                             steps / 2 * half + 2 * chunk + i, left[chunk][i]);
      }
      pin(sums);
      open_products();
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        multiply_step(left[chunk][i], right + 2 * (2 * chunk + i), step > 0 || chunk + i > 0, sums);
      }
      close_products();
    }
    before = of_x.stage;
    of_x.advance(gemm.stages);
    if (half == 0 && step + 1 < k_steps) continue;
    __syncwarp();
    if (lane == 0) arrive(places.codes_empty + 8 * of_codes.stage);
    of_codes.advance(code_stages);
  }
  wait_for_products<0>();
  if (lane == 0) arrive(places.x_empty + 8 * before);
  pin(sums);
}

template <class T>
__device__ void multiply_tiles(const Gemm& gemm, const TileTable& table, const Places& places) {
  const int warp = __shfl_sync(~0U, threadIdx.x / 32, 0), group = warp / 4;
  const int tiles = table.tiles();
  Position of_x, of_codes;
  for (int number = blockIdx.x; number < tiles; number += gridDim.x) {
    const Tile tile = find_tile<T>(table, number);
    std::int32_t own_targets[T::max_rows / group_threads];
    find_targets<T::max_rows, group_threads>(gemm, tile, own_targets);
    float sums[T::max_rows / 2] = {};
    const auto multiply_rows = [&]<int rows>() {
      multiply<T, rows>(gemm, places, warp, of_x, of_codes,
                        reinterpret_cast<float(&)[rows / 2]>(sums));
    };
    switch (padded_rows(tile.rows)) {
      case 64:
        multiply_rows.template operator()<64>();
        break;
      case 128:
        multiply_rows.template operator()<128>();
        break;
      case 192:
        multiply_rows.template operator()<192>();
        break;
      default:
        multiply_rows.template operator()<256>();
    }
    std::int32_t* const targets = places.targets + group * T::max_rows;
#pragma unroll
    for (int i = 0; i < T::max_rows / group_threads; ++i) {
      targets[i * group_threads + threadIdx.x % group_threads] = own_targets[i];
    }
    const int first_row = (tile.column * T::panels + 2 * warp) * 8;
    complete_sums<typename T::Traits>(gemm, tile, first_row, sums);
    if (gemm.output == Output::f32) {
      store_floats<T::max_rows>(gemm, tile, first_row, sums);
    } else {
      store_tile<T>(gemm, tile, warp, places.passing + group * T::passing_bytes, targets, sums);
    }
  }
}

constexpr int max_x_stages = 5;  // more never fit

template <class T>
__global__ void __launch_bounds__(T::threads, T::blocks)
    coded_grouped_gemm_wide_kernel(const __grid_constant__ Gemm gemm) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char shared[];
  __shared__ std::uint64_t x_full[max_x_stages], x_empty[max_x_stages];
  __shared__ std::uint64_t codes_full[code_stages], codes_empty[code_stages];
  const std::uint32_t begin = shared_address(shared);
  Places places{};
  places.x = (begin + alignment - 1) / alignment * alignment;
  places.passing = places.x + gemm.stages * T::box_bytes;
  places.codes_at = places.passing + T::groups * T::passing_bytes;
  places.codes = shared + (places.codes_at - begin);
  places.targets = reinterpret_cast<std::int32_t*>(places.codes + code_stages * gemm.stage_bytes);
  places.x_full = shared_address(x_full);
  places.x_empty = shared_address(x_empty);
  places.codes_full = shared_address(codes_full);
  places.codes_empty = shared_address(codes_empty);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < gemm.stages; ++stage) {
      open_barrier(places.x_full + 8 * stage, group_threads);
      open_barrier(places.x_empty + 8 * stage, T::multiplying / 32);
    }
    for (int stage = 0; stage < code_stages; ++stage) {
      open_barrier(places.codes_full + 8 * stage);
      open_barrier(places.codes_empty + 8 * stage, T::multiplying / 32);
    }
    show_barriers();
  }
  begin_early_kernel();
  auto* const tables = places.targets + T::groups * T::max_rows;
  const TileTable table = make_table<T>(gemm, tables);
  if (threadIdx.x >= T::multiplying) {
    leave_registers<T::fetching_registers>();
    fetch_tiles<T>(gemm, table, places);
    wait_for_copies<0>();
  } else {
    take_registers<T::multiplying_registers>();
    multiply_tiles<T>(gemm, table, places);
  }
#endif
}

template <class T>
cudaError_t launch(const CodedGroupedGemm& wanted, cudaStream_t stream) {
  constexpr int box_alignment = 128;
  Gemm gemm{};
  if (!describe<T>(wanted, gemm)) return cudaErrorInvalidValue;
  const int bytes = T::panels * gemm.layout.unit_bytes;
  gemm.stage_bytes = (bytes + box_alignment - 1) / box_alignment * box_alignment;
  const int tables = static_cast<int>(tile_table_bytes(wanted.experts));
  const int others = alignment + T::groups * (T::passing_bytes + T::targets_bytes) +
                     code_stages * gemm.stage_bytes + tables;
  gemm.stages = std::min(max_x_stages, (max_shared - others) / T::box_bytes);
  const int shared = others + gemm.stages * T::box_bytes;
  return launch_tiles<T>(coded_grouped_gemm_wide_kernel<T>, gemm, shared, stream);
}

}  // namespace
}  // namespace cuda

using namespace cuda;

cudaError_t launch_coded_grouped_gemm_wide(const CodedGroupedGemm& gemm, cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  with_expert_traits(gemm.layout,
                     [&]<class Traits>(Traits) { error = launch<Wide<Traits>>(gemm, stream); });
  return error;
}

}  // namespace troupe
