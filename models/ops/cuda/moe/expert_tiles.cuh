// Shared by the kernels of grouped GEMMs: the layout of a tile in shared memory, the table of all
// experts' tiles, and the gate.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "models/ops/cuda/common/warp_scan.cuh"
#include "parallel/device/cuda/device_math.cuh"

namespace troupe::cuda {

constexpr int tile_k = 64;         // 128 bytes, the swizzle's row length
constexpr int row_bytes = 128;     // of a tile in shared memory
constexpr int units = 8;           // of 16 bytes in such a row
constexpr int unit_elements = 8;   // of bf16
constexpr int alignment = 1024;    // of a tile, for the swizzle
constexpr int max_experts = 1024;  // whose tables fit shared memory

constexpr std::size_t tile_table_bytes(std::int64_t experts) {
  return 2 * static_cast<std::size_t>(experts + 1) * sizeof(std::int32_t);
}

/// The first tile of each expert, counted through all; in shared memory.
struct TileTable {
  const std::int32_t* offsets;  // [experts + 1] sorted rows
  const std::int32_t* first;    // [experts + 1] tiles
  int experts;

  __device__ int tiles() const { return first[experts]; }
  __device__ int rows_of(int expert) const { return offsets[expert + 1] - offsets[expert]; }
  /// Returns the last expert whose first tile is at or before this one.
  __device__ int expert_of(int tile) const {
    int low = 0, high = experts - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (first[middle] <= tile) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }
};

/// Counts the tiles of all experts, tiles_of(rows) each; called by all threads of a block.
/// `memory`: tile_table_bytes. offset_of(e) is expert e's first row.
template <class OffsetOf, class TilesOf>
__device__ TileTable make_tile_table(const OffsetOf& offset_of, int experts, std::int32_t* memory,
                                     TilesOf&& tiles_of) {
  std::int32_t* offsets = memory;
  std::int32_t* first = memory + experts + 1;
  for (int e = threadIdx.x; e <= experts; e += blockDim.x) offsets[e] = offset_of(e);
  __syncthreads();
  if (threadIdx.x < 32) {
    sum_up([&](int e) { return tiles_of(offsets[e + 1] - offsets[e]); }, experts, first);
  }
  __syncthreads();
  return {offsets, first, experts};
}

/// The address of a unit of row `row` of a tile's x; null after the tile's last row.
template <class Gemm, class Tile>
__device__ __forceinline__ const bf16* unit_of_row(const Gemm& gemm, const Tile& tile, int row,
                                                   int unit) {
  if (row >= tile.rows) return nullptr;
  const int sorted = tile.row + row;
  const std::size_t from = gemm.gather ? gemm.source[sorted] / gemm.top_k : sorted;
  return gemm.x + from * gemm.k + unit * unit_elements;
}

}  // namespace troupe::cuda
