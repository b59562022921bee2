// Grouped GEMMs with experts of 4-bit codes and of E4M3 on Hopper's tensor cores (wgmma). One group
// of four warps fetches units of codes, by the copy engine, and the rows of x, which are scattered,
// by its threads; two or three groups make numbers of the codes in registers, the left operand, and
// multiply.
#include <algorithm>

#include "models/ops/cuda/common/ptx_sm90.cuh"
#include "models/ops/cuda/common/wgmma_registers.cuh"
#include "models/ops/cuda/moe/coded_grouped_gemm.hpp"
#include "models/ops/cuda/moe/coded_grouped_gemm_wide.hpp"
#include "models/ops/cuda/moe/coded_grouped_tiles.cuh"
#include "parallel/device/cuda/launch.cuh"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace cuda {
namespace {

using namespace coded_experts;

constexpr int max_stages = 8;

/// Many rows: sums take the registers that the fetching group leaves.
template <class Traits>
struct Large : Tiling<Traits, 3, 128, 1> {
  static constexpr int fetching_registers = 40, multiplying_registers = 152;  // per thread
  static_assert((fetching_registers + 3 * multiplying_registers) * group_threads <= 1 << 16);
};
/// Few rows, bound by the codes' bytes.
template <class Traits>
struct Small : Tiling<Traits, 2, 32, 2> {
  static constexpr int fetching_registers = 0, multiplying_registers = 0;  // as they are
};

/// Shared memory of a block.
struct Places {
  unsigned char* memory;      // of the stages: [rows of x, panels]
  std::uint32_t stages;       // its address
  std::uint32_t full, empty;  // [stages] barriers
};

/// The rows that a tile's instructions multiply: the least of 16, 32, 64, 80 and 128 that holds its
/// own.
__device__ __forceinline__ int padded_rows(int rows) {
  if (rows <= 32) return rows <= 16 ? 16 : 32;
  if (rows <= 80) return rows <= 64 ? 64 : 80;
  return 128;
}

/// The fetching group: refills stages once the multiplying groups have released them.
template <class T>
__device__ void fetch_tiles(const Gemm& gemm, const TileTable& table, const Places& places) {
  const int thread = static_cast<int>(threadIdx.x) - T::multiplying, tiles = table.tiles();
  RowCopies<T> copies(gemm, thread);
  Position position{0, 1};  // all stages are empty
  for (int number = blockIdx.x; number < tiles; number += gridDim.x) {
    const Tile tile = find_tile<T>(table, number);
    const int rows = padded_rows(tile.rows);
    copies.find(tile);
    for (int of_k = 0; of_k < gemm.layout.units; ++of_k) {
      const std::uint32_t full = places.full + 8 * position.stage;
      const std::uint32_t at = places.stages + position.stage * gemm.stage_bytes;
      wait_for_bytes(places.empty + 8 * position.stage, position.odd);
      if (thread == 0) {
        expect_bytes(full, T::panels * gemm.layout.unit_bytes);
        copy_unit<T>(gemm, tile, of_k, at + T::x_bytes, full);
      }
#pragma unroll
      for (int box = 0; box < 2; ++box) copies.copy(at + box * T::box_bytes, rows);
      arrive_after_copies(full);
      position.advance(gemm.stages);
    }
  }
}

/// Writes a warp's sums of a part, in wgmma's layout: of `rows` rows of x with two panels of the
/// weights, the first of which begins with row `at`. Lane l knows where rows l, l + 32, .. go.
template <int rows>
__device__ __forceinline__ void store_sums(const Gemm& gemm, const Tile& tile, int at,
                                           const std::int32_t (&targets)[(rows + 31) / 32],
                                           const float (&sums)[rows / 2]) {
  const int lane = threadIdx.x % 32;
  const std::size_t width = gemm.width;
  const bool even = lane / 4 % 2 == 0;
  auto* const out = static_cast<bf16*>(gemm.out);
  const GatedColumn gated(gemm, tile, at / 2 + lane / 4);
#pragma unroll
  for (int j = 0; j < rows / 8; ++j) {
    const float* const own = sums + 4 * j;
    const int row = 8 * j + lane % 4 * 2;
    if (gemm.output == Output::f32) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::size_t to = __shfl_sync(~0U, targets[j / 4], (row + i) % 32);
        if (row + i >= tile.rows) continue;
        float* const place = static_cast<float*>(gemm.out) + to * width + at + lane / 4;
        if (at + lane / 4 < gemm.width) place[0] = own[i];
        if (at + lane / 4 + 8 < gemm.width) place[8] = own[2 + i];
      }
      continue;
    }
    // Two lanes exchange halves, so that each writes two columns of one row.
    const int own_row = even ? row : row + 1;
    const std::size_t to = __shfl_sync(~0U, targets[j / 4], own_row % 32);
    const auto store_pair = [&](float first, float second, int column) {
      const float got = __shfl_xor_sync(~0U, even ? second : first, 4);
      if (own_row >= tile.rows || column >= gemm.width) return;
      *reinterpret_cast<__nv_bfloat162*>(out + to * width + column) =
          even ? __floats2bfloat162_rn(first, got) : __floats2bfloat162_rn(got, second);
    };
    const int pair = lane / 8 * 2;
    if (is_gated(gemm.output)) {
      store_pair(gated.output(own[0], own[2]), gated.output(own[1], own[3]), at / 2 + pair);
    } else {
      store_pair(own[0], own[1], at + pair);
      store_pair(own[2], own[3], at + 8 + pair);
    }
  }
}

/// Multiplies a tile of at most `rows` rows and writes it.
template <class T, int rows>
__device__ __forceinline__ void multiply_and_store(const Gemm& gemm, const Tile& tile,
                                                   const Places& places, int warp,
                                                   Position& position) {
  using Traits = typename T::Traits;
  // With the most rows registers hold the numbers of one chunk alone: meanwhile other groups
  // multiply.
  constexpr int buffers = rows <= 32 ? 2 : 1;
  const CodeLayout& layout = gemm.layout;
  const int lane = threadIdx.x % 32;
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
    LaneCodes<Traits::kind, Traits::has_zeros> top, bottom;
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
        const int step = 2 * chunk + i;
        make_numbers<Traits>(layout, top, bottom, upper, lower, step, step, numbers[i]);
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
    position.advance(gemm.stages);
  }
  std::int32_t targets[(rows + 31) / 32];
  find_targets<rows>(gemm, tile, targets);
  wait_for_products<0>();
  if (lane == 0) arrive(places.empty + 8 * before);
  pin(sums);
  const int first_row = (tile.column * T::panels + 2 * warp) * 8;
  complete_sums<Traits>(gemm, tile, first_row, sums);
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
  const TileTable table = make_table<T>(gemm, tables);
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

template <class T>
cudaError_t launch(const CodedGroupedGemm& wanted, cudaStream_t stream) {
  Gemm gemm{};
  if (!describe<T>(wanted, gemm)) return cudaErrorInvalidValue;
  const int bytes = T::x_bytes + T::panels * gemm.layout.unit_bytes;
  gemm.stage_bytes = (bytes + alignment - 1) / alignment * alignment;
  const int tables = static_cast<int>(tile_table_bytes(wanted.experts));
  gemm.stages =
      std::min(max_stages, (max_shared / T::blocks - alignment - tables) / gemm.stage_bytes);
  const int shared = alignment + gemm.stages * gemm.stage_bytes + tables;
  return launch_tiles<T>(coded_grouped_gemm_kernel<T>, gemm, shared, stream);
}

/// From so many rows an expert on, with equally many for each, wide tiles are faster, measured with
/// MXFP4 and int4.
constexpr std::int64_t min_wide_rows = 112;

}  // namespace
}  // namespace cuda

using namespace cuda;

cudaError_t launch_coded_grouped_gemm(const CodedGroupedGemm& gemm, cudaStream_t stream) {
  if (gemm.assignments >= min_wide_rows * gemm.experts) {
    return launch_coded_grouped_gemm_wide(gemm, stream);
  }
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
