// The tiles of coded_grouped_gemm.cu: which a block has, what its codes become, and where its sums
// go.
#pragma once

#include <cuda.h>

#include "models/ops/cuda/common/silu.cuh"
#include "models/ops/cuda/gemm/code_fragments.cuh"
#include "models/ops/cuda/moe/expert_tiles.cuh"
#include "parallel/device/cuda/device_math.cuh"

namespace troupe::cuda::coded_experts {

constexpr int group_threads = 128;
constexpr int group_panels = 8;  // of 64 rows of the weights, an instruction's
constexpr int steps = 8;         // of 16 columns in a unit of codes
constexpr int max_stages = 8;
constexpr int max_shared = 226 * 1024;  // of a multiprocessor

/// A block multiplies up to `max_rows` rows of x with 64 rows of the weights for each of `groups`
/// groups of four warps; another group fetches.
template <class Traits_, int groups_, int max_rows_, int blocks_>
struct Tiling {
  using Traits = Traits_;
  static constexpr int groups = groups_;
  static constexpr int max_rows = max_rows_;
  static constexpr int blocks = blocks_;  // of a multiprocessor
  static constexpr int multiplying = groups * group_threads;
  static constexpr int threads = multiplying + group_threads;
  static constexpr int panels = groups * group_panels;
  static constexpr int box_bytes = max_rows * row_bytes;  // of 64 columns of x
  static constexpr int x_bytes = 2 * box_bytes;           // of a unit
};

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

enum class Output { bf16, f32, gated, clamped };
__host__ __device__ constexpr bool is_gated(Output output) {
  return output == Output::gated || output == Output::clamped;
}

struct Gemm {
  CUtensorMap weights;
  const bf16* x;
  const std::int32_t* offsets;
  const std::int32_t* source;
  const float* bias;
  const float* row_scales;
  void* out;
  CodeLayout layout;
  Output output;
  std::uint32_t k, top_k;
  int experts, width, column_tiles;  // width: of the output
  int stages, stage_bytes;
  bool gather, scatter;
};

struct Tile {
  int expert;
  int row;     // the first sorted row
  int rows;    // 1 to max_rows
  int column;  // in tiles
};

/// Tiles of the same columns are adjacent, so that their weights are still in the cache.
template <class T>
__device__ Tile find_tile(const TileTable& table, int number) {
  const int expert = table.expert_of(number);
  const int begin = table.offsets[expert], rows = table.rows_of(expert);
  const int row_tiles = (rows + T::max_rows - 1) / T::max_rows;
  const int in_expert = number - table.first[expert], column = in_expert / row_tiles;
  const int row = (in_expert - column * row_tiles) * T::max_rows;
  return {expert, begin + row, min(T::max_rows, rows - row), column};
}

/// The rows that a tile's instructions multiply: the least of 16, 32, 64, 80 and 128 that holds its
/// own.
__device__ __forceinline__ int padded_rows(int rows) {
  if (rows <= 32) return rows <= 16 ? 16 : 32;
  if (rows <= 80) return rows <= 64 ? 64 : 80;
  return 128;
}

/// Multiplies a warp's sums, as store_sums takes them, by the scales of their rows of the weights.
template <class Traits, int count>
__device__ __forceinline__ void scale_rows(const Gemm& gemm, const Tile& tile, int at,
                                           float (&sums)[count]) {
  const bool gated = is_gated(gemm.output);
  const int n = gated ? 2 * gemm.width : gemm.width;
  const int upper = (gated ? at / 2 : at) + threadIdx.x % 32 / 4;
  const int lower = gated ? upper + gemm.width : upper + 8;
  const float* const of_expert = gemm.row_scales + std::size_t(n) * tile.expert;
  const float top = of_expert[min(upper, n - 1)] * Traits::rest;
  const float bottom = of_expert[min(lower, n - 1)] * Traits::rest;
#pragma unroll
  for (int i = 0; i < count; i += 4) {
    sums[i] *= top, sums[i + 1] *= top;
    sums[i + 2] *= bottom, sums[i + 3] *= bottom;
  }
}

/// Activation::clamped_gated for results that are rounded to bf16.
__device__ __forceinline__ float clamped_swiglu(float gate, float up) {
  const float g = fminf(gate, 7.0F), u = fminf(fmaxf(up, -7.0F), 7.0F);
  return __fdividef(g, 1.0F + __expf(-1.702F * g)) * (u + 1.0F);
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
  float gate_bias = 0.0F, up_bias = 0.0F;
  const int own_column = at / 2 + lane / 4;
  if (gemm.bias != nullptr && own_column < gemm.width) {
    const float* const of_expert = gemm.bias + 2 * width * tile.expert;
    gate_bias = of_expert[own_column];
    up_bias = of_expert[width + own_column];
  }
  const auto activated = [&](float gate, float up) {
    gate += gate_bias;
    up += up_bias;
    return gemm.output == Output::clamped ? clamped_swiglu(gate, up) : fast_silu(gate) * up;
  };
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
      store_pair(activated(own[0], own[2]), activated(own[1], own[3]), at / 2 + pair);
    } else {
      store_pair(own[0], own[1], at + pair);
      store_pair(own[2], own[3], at + 8 + pair);
    }
  }
}

}  // namespace troupe::cuda::coded_experts
