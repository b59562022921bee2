// Shared by the kernels of grouped GEMMs: the layout of a tile in shared memory, its elements, and
// the table of all experts' tiles.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "models/ops/cuda/common/ptx_sm90.cuh"
#include "models/ops/cuda/common/warp_scan.cuh"
#include "parallel/device/cuda/device_math.cuh"

namespace troupe::cuda {

constexpr int row_bytes = 128;     // of a tile in shared memory: the swizzle's row length
constexpr int unit_bytes = 16;     // that a thread copies at once
constexpr int units = 8;           // in such a row
constexpr int alignment = 1024;    // of a tile, for the swizzle
constexpr int max_experts = 1024;  // whose tables fit shared memory

constexpr std::size_t tile_table_bytes(std::int64_t experts) {
  return 2 * static_cast<std::size_t>(experts + 1) * sizeof(std::int32_t);
}

/// Elements of weights and rows: bf16, or E4M3 codes with a scale for each row of either.
struct Bf16Tiles {
  using Stored = bf16;
  static constexpr bool has_scales = false;
  static constexpr int unit_elements = 8, tile_k = 64;
  template <int count>
  __device__ __forceinline__ static void multiply(std::uint64_t left, std::uint64_t right, int adds,
                                                  float (&sums)[count]) {
    wgmma(left, right, adds, sums);
  }
};
/// Sums of a tile's 128 columns are added to those before in fp32: the tensor cores add codes'
/// products with fewer bits.
struct E4m3Tiles {
  using Stored = std::uint8_t;
  static constexpr bool has_scales = true;
  static constexpr int unit_elements = 16, tile_k = 128;
  template <int count>
  __device__ __forceinline__ static void multiply(std::uint64_t left, std::uint64_t right, int adds,
                                                  float (&sums)[count]) {
    wgmma_e4m3(left, right, adds, sums);
  }
};

/// Issues the products of a tile's columns as a group: sums = left . right^T, plus sums if `adds`.
template <class Element, int count>
__device__ __forceinline__ void multiply_tile(std::uint64_t left, std::uint64_t right, bool adds,
                                              float (&sums)[count]) {
  pin(sums);
  open_products();
#pragma unroll
  for (int i = 0; i < row_bytes / 32; ++i) {
    Element::multiply(left + 2 * i, right + 2 * i, adds || i > 0, sums);
  }
  close_products();
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

/// The row of x for a sorted row.
template <class Gemm>
__device__ __forceinline__ std::size_t row_of_x(const Gemm& gemm, int sorted) {
  return gemm.gather ? gemm.source[sorted] / gemm.top_k : sorted;
}
/// The address of a unit of row `row` of a tile's x; null after the tile's last row.
template <class Gemm, class Tile>
__device__ __forceinline__ auto unit_of_row(const Gemm& gemm, const Tile& tile, int row, int unit)
    -> decltype(gemm.x) {
  if (row >= tile.rows) return nullptr;
  return gemm.x + row_of_x(gemm, tile.row + row) * gemm.k + unit * Gemm::Element::unit_elements;
}

}  // namespace troupe::cuda
