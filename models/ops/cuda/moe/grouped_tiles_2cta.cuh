// The tiles of grouped_gemm_2cta.cu: which a block has, and where its sums go.
#pragma once

#include <cuda.h>

#include "models/ops/cuda/common/silu.cuh"
#include "models/ops/cuda/moe/expert_tiles.cuh"
#include "parallel/device/cuda/device_math.cuh"

namespace troupe::cuda::two_blocks {

constexpr int group_threads = 128;
constexpr int multiplying = 2 * group_threads;
constexpr int threads = multiplying + group_threads;
constexpr int fetching_registers = 56, multiplying_registers = 224;  // per thread
static_assert((fetching_registers + 2 * multiplying_registers) * group_threads <= 1 << 16);
constexpr int cluster_blocks = 2;
constexpr int group_rows = 64;
constexpr int tile_rows = 2 * group_rows;
constexpr int tile_columns = 256;  // of the matrix, gates and their ups
constexpr int box_columns = tile_columns / 2;
constexpr int rows_bytes = tile_rows * row_bytes;
constexpr int box_bytes = box_columns * row_bytes;
constexpr int stage_bytes = rows_bytes + 2 * box_bytes;
constexpr int stages = 4;
constexpr int warp_rows = 16;
constexpr int warp_bytes = warp_rows * row_bytes;  // for the warp's sums on their way out
constexpr int passing_bytes = multiplying / 32 * warp_bytes;

template <class Element_>
struct Gemm {
  using Element = Element_;
  CUtensorMap weights;
  const typename Element::Stored* x;
  const float *weight_scales, *x_scales;  // of codes
  const std::int32_t* offsets;
  const std::int32_t* source;
  std::uint32_t k, top_k;
  int experts, width, column_tiles;  // width: of the output
  bool gather, scatter;
};

/// A block's part of its cluster's tile.
struct Tile {
  int expert;
  int row;      // the first sorted row
  int rows;     // 1 to tile_rows
  int column;   // in tiles; column_tiles: none
  bool shared;  // both blocks have the same columns
};

/// The number of tiles of an expert's rows that two blocks share, the last possibly not full; the
/// rest is at most tile_rows.
__device__ int shared_tiles(int rows) { return (rows + tile_rows - 1) / (2 * tile_rows); }

template <class Element>
__device__ TileTable make_table(const Gemm<Element>& gemm, std::int32_t* memory) {
  const int columns = gemm.column_tiles;
  const auto offset_of = [&](int expert) { return gemm.offsets[expert]; };
  return make_tile_table(offset_of, gemm.experts, memory, [columns](int rows) {
    const int shared = shared_tiles(rows);
    const int rest = rows > shared * 2 * tile_rows ? (columns + 1) / 2 : 0;
    return shared * columns + rest;
  });
}

/// Tiles of the same columns are adjacent, so that their weights are still in the cache.
__device__ Tile find_tile(const TileTable& table, int column_tiles, int number, int block) {
  const int expert = table.expert_of(number);
  const int begin = table.offsets[expert], rows = table.rows_of(expert);
  const int shared = shared_tiles(rows), in_expert = number - table.first[expert];
  if (in_expert < shared * column_tiles) {
    const int column = in_expert / shared;
    const int row = (2 * (in_expert - column * shared) + block) * tile_rows;
    return {expert, begin + row, min(tile_rows, rows - row), column, true};
  }
  const int row = 2 * shared * tile_rows;
  const int column = 2 * (in_expert - shared * column_tiles) + block;
  return {expert, begin + row, rows - row, column, false};
}

/// The output element for a thread's sum at `at`: with `gated` the ups are after the gates.
template <bool gated>
__device__ __forceinline__ float output_of(const float (&sums)[tile_columns / 2], int at) {
  if constexpr (!gated) return sums[at];
  return fast_silu(sums[at]) * sums[(at + box_columns / 2) % (tile_columns / 2)];
}

/// Multiplies a thread's sums of codes, in wgmma's layout, by their scales; lane r % 16 knows that
/// of row r of its warp.
template <bool gated, class Element>
__device__ void scale_sums(const Gemm<Element>& gemm, const Tile& tile, float of_row,
                           float (&sums)[tile_columns / 2]) {
  constexpr int columns = gated ? box_columns : tile_columns;
  const int lane = threadIdx.x % 32;
  const float upper = __shfl_sync(~0U, of_row, lane / 4);
  const float lower = __shfl_sync(~0U, of_row, lane / 4 + 8);
  const float* const of_expert =
      gemm.weight_scales + std::size_t(gated ? 2 : 1) * gemm.width * tile.expert;
#pragma unroll
  for (int j = 0; j < tile_columns / 8; ++j) {
    const int column = tile.column * columns + 8 * j % columns + lane % 4 * 2;
    if (column >= gemm.width) continue;
    const auto of_columns =
        *reinterpret_cast<const float2*>(of_expert + column + (8 * j < columns ? 0 : gemm.width));
    sums[4 * j] = sums[4 * j] * upper * of_columns.x;
    sums[4 * j + 1] = sums[4 * j + 1] * upper * of_columns.y;
    sums[4 * j + 2] = sums[4 * j + 2] * lower * of_columns.x;
    sums[4 * j + 3] = sums[4 * j + 3] * lower * of_columns.y;
  }
}

/// Writes a warp's sums, in wgmma's layout: 16 rows, beginning at row `first` of the tile; lane r %
/// 16 knows where row r goes. Through shared memory, 64 columns at a time, so that whole lines of
/// 128 bytes are written.
template <bool gated, class Element>
__device__ void store_rows(const Gemm<Element>& gemm, const Tile& tile, int first, int to_row,
                           const float (&sums)[tile_columns / 2], std::uint32_t passing,
                           bf16* out) {
  constexpr int columns = gated ? box_columns : tile_columns, chunk_columns = row_bytes / 2;
  const int lane = threadIdx.x % 32;
  const int begin = tile.column * columns;
#pragma unroll
  for (int chunk = 0; chunk < columns / chunk_columns; ++chunk) {
    __syncwarp();
#pragma unroll
    for (int unit = 0; unit < units; unit += 2) {
      const int at = 4 * (units * chunk + unit);
      std::uint32_t assignments[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        assignments[i] =
            round_pair(output_of<gated>(sums, at + 2 * i), output_of<gated>(sums, at + 2 * i + 1));
      }
      const int row = lane % warp_rows;
      store_matrices(passing + row * row_bytes + (((unit + lane / 16) ^ (row % units)) * 16),
                     assignments);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < warp_rows; i += 32 / units) {
      const int row = i + lane / units;
      const int column = begin + chunk * chunk_columns + lane % units * (unit_bytes / 2);
      const std::size_t to = __shfl_sync(~0U, to_row, row);
      const uint4 unit = load_shared(passing + row * row_bytes + ((lane ^ row) % units * 16));
      if (first + row < tile.rows && column < gemm.width) {
        *reinterpret_cast<uint4*>(out + to * gemm.width + column) = unit;
      }
    }
  }
}
/// The same for fp32, written directly: four lanes write 32 bytes.
template <bool gated, class Element>
__device__ void store_rows(const Gemm<Element>& gemm, const Tile& tile, int first, int to_row,
                           const float (&sums)[tile_columns / 2], std::uint32_t, float* out) {
  constexpr int columns = gated ? box_columns : tile_columns;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = lane / 4 + 8 * half;
    const std::size_t to = __shfl_sync(~0U, to_row, row);
    if (first + row >= tile.rows) continue;
#pragma unroll
    for (int j = 0; j < columns / 8; ++j) {
      const int column = tile.column * columns + 8 * j + lane % 4 * 2;
      if (column >= gemm.width) break;
      const int at = 4 * j + 2 * half;
      *reinterpret_cast<float2*>(out + to * gemm.width + column) =
          make_float2(output_of<gated>(sums, at), output_of<gated>(sums, at + 1));
    }
  }
}

}  // namespace troupe::cuda::two_blocks
