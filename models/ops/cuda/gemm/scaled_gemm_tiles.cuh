// How the blocks of scaled_gemm.cu share out a GEMM, and their copies of tiles to shared memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda.h>

#include "models/ops/cuda/common/cache_policy.cuh"
#include "models/ops/cuda/common/cluster.cuh"
#include "models/ops/cuda/common/ptx_sm90.cuh"
#include "models/ops/cuda/gemm/gemm_elements.cuh"
#include "models/ops/cuda/gemm/scaled_gemm.hpp"
#include "models/ops/cuda/gemm/scaled_gemm_tiling.hpp"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe::cuda::scaled {

constexpr int group_threads = 128;
constexpr int consumers = 2 * group_threads, threads = consumers + group_threads;
constexpr int producer_registers = 40, consumer_registers = 232;  // per thread
static_assert((producer_registers + 2 * consumer_registers) * group_threads <= 1 << 16);
constexpr int alignment = 1024;
constexpr int row_bytes = tile_k;  // of a tile in shared memory: the swizzle's row length
constexpr int group_rows = tile_rows / 2;
constexpr int half_x_bytes = group_rows * row_bytes, x_bytes = 2 * half_x_bytes;
constexpr int warp_rows = 16, warps = consumers / 32;
constexpr int pair_blocks = 2;
constexpr std::uint16_t both_blocks = 3;
constexpr int max_shared = 226 * 1024;

/// `cuts_k`: both blocks of a pair have the same tile.
template <class Element_, int columns_, bool cuts_k_>
struct Tiling {
  using Element = Element_;
  using Sum = typename Element::Sum;
  static constexpr int columns = columns_;
  static constexpr bool cuts_k = cuts_k_;
  static constexpr int half_weight_bytes = columns / 2 * row_bytes;
  static constexpr int stage_bytes = x_bytes + 2 * half_weight_bytes;
  static constexpr int sums = columns / 2;  // per thread
  /// Per warp, for its sums on their way out; if k is cut, before that for those it receives.
  static constexpr int warp_bytes = cuts_k ? 32 * sums / 2 * 4 : warp_rows * row_bytes;
  static constexpr int scales_bytes = (columns + tile_rows) * 4;  // of a tile: of the weight, of x
  static constexpr int other_bytes = warps * warp_bytes + 2 * scales_bytes;
  static constexpr int stages = std::min(8, (max_shared - alignment - other_bytes) / stage_bytes);
  static constexpr int shared_bytes = alignment + stages * stage_bytes + other_bytes;
  static_assert(stages >= 4 && half_weight_bytes % alignment == 0);
};

struct Gemm {
  CUtensorMap weight, x;
  const float *weight_scales, *x_scales;
  bf16* out;
  int rows, n, k_steps;
  int row_units, column_units;  // tiles, or pairs of tiles
  PairShares shares;
};

/// Offsets in a block's shared memory.
struct Places {
  std::uint32_t stages, passing, scales;  // [stages], [warps], [2]
  std::uint32_t full, empty;              // [stages] barriers
  std::uint32_t received;                 // barrier, if k is cut
};

/// Where a block's tile begins: its row of x, and its row of the weight, a column of the output.
struct Tile {
  int row, column;
};

/// The number of stages that a block with `steps` steps of k uses: no more, so that those of one
/// tile have been read before copies of the tile after the next begin, with scales in their place.
template <class T>
__device__ __forceinline__ int used_stages(int steps) {
  return min(T::stages, steps);
}

/// Units of the same rows of the weight are adjacent, so that these are still in the cache; in
/// bands of rows of x, so that these are, too.
template <class T>
__device__ __forceinline__ Tile find_tile(const Gemm& gemm, int unit, int block) {
  constexpr int band_rows = 8;
  const int band = unit / (band_rows * gemm.column_units);
  const int rows = min(band_rows, gemm.row_units - band * band_rows);
  const int at = unit - band * band_rows * gemm.column_units;
  int row = band * band_rows + at % rows, column = at / rows;
  if (gemm.shares == PairShares::weight) row = 2 * row + block;
  if (gemm.shares == PairShares::x) column = 2 * column + block;
  return {row * tile_rows, column * T::columns};
}

/// Calls body(tile) for each tile of this block.
template <class T, class Body>
__device__ __forceinline__ void for_each_tile(const Gemm& gemm, Body&& body) {
  const int units = gemm.row_units * gemm.column_units, block = block_of_cluster();
  for (int unit = blockIdx.x / pair_blocks; unit < units; unit += gridDim.x / pair_blocks) {
    body(find_tile<T>(gemm, unit, block));
  }
}

/// Makes the copy engine bring this block's tiles. All is called by one thread.
template <class T>
class Producer {
 public:
  __device__ Producer(const Gemm& gemm, const Places& places, int first_step, int steps)
      : gemm_(gemm),
        places_(places),
        first_step_(first_step),
        steps_(steps),
        stages_(used_stages<T>(steps)),
        block_(block_of_cluster()),
        policy_(make_cache_policy(gemm.row_units == 1)) {}

  __device__ void run() {
    bool is_first = true;
    for_each_tile<T>(gemm_, [&](const Tile& tile) {
      int step = 0;
      if (is_first) {
        // The first weights do not wait for the kernel before.
        for (; step < stages_; ++step) {
          expect(tile, step, step);
          copy_weights(tile, step, step);
        }
        wait_for_kernels_before();
        copy_scales(tile, 0);
        for (step = 0; step < stages_; ++step) copy_x(tile, step, step);
        is_first = false;
      }
      for (; step < steps_; ++step) {
        wait_for_bytes(places_.empty + 8 * stage_, odd_);
        expect(tile, step, stage_);
        if (step == 0) copy_scales(tile, stage_);
        copy_weights(tile, step, stage_);
        copy_x(tile, step, stage_);
        if (++stage_ == stages_) {
          stage_ = 0;
          odd_ ^= 1;
        }
      }
      scales_at_ ^= T::scales_bytes;
    });
  }

 private:
  // A tile's scales come with its first step.
  __device__ std::uint32_t weight_scale_bytes(const Tile& tile) const {
    return 4 * max(min(T::columns, gemm_.n - tile.column), 0);
  }
  __device__ std::uint32_t x_scale_bytes(const Tile& tile) const {
    return (4 * max(min(tile_rows, gemm_.rows - tile.row), 0) + 15) / 16 * 16;
  }
  __device__ void expect(const Tile& tile, int step, int stage) const {
    const std::uint32_t scales = step == 0 ? weight_scale_bytes(tile) + x_scale_bytes(tile) : 0;
    expect_bytes(places_.full + 8 * stage, T::stage_bytes + scales);
  }
  __device__ void copy_scales(const Tile& tile, int stage) const {
    const std::uint32_t to = places_.scales + scales_at_, full = places_.full + 8 * stage;
    const std::uint32_t of_weight = weight_scale_bytes(tile), of_x = x_scale_bytes(tile);
    if (of_weight > 0) copy_bulk(to, gemm_.weight_scales + tile.column, of_weight, full);
    if (of_x > 0) copy_bulk(to + 4 * T::columns, gemm_.x_scales + tile.row, of_x, full);
  }
  __device__ void copy_weights(const Tile& tile, int step, int stage) const {
    const std::uint32_t to = places_.stages + stage * T::stage_bytes + x_bytes,
                        full = places_.full + 8 * stage;
    const int k = (first_step_ + step) * tile_k;
    const auto row_of = [&](int half) { return tile.column + half * (T::columns / 2); };
    if (!T::cuts_k && gemm_.shares == PairShares::weight) {
      copy_box_to_blocks(to + block_ * T::half_weight_bytes, &gemm_.weight, k, row_of(block_), 0, 0,
                         0, full, both_blocks, policy_);
      return;
    }
    for (int half = 0; half < 2; ++half) {
      copy_box(to + half * T::half_weight_bytes, &gemm_.weight, k, row_of(half), 0, 0, 0, full,
               policy_);
    }
  }
  __device__ void copy_x(const Tile& tile, int step, int stage) const {
    const std::uint32_t to = places_.stages + stage * T::stage_bytes,
                        full = places_.full + 8 * stage;
    const int k = (first_step_ + step) * tile_k;
    const auto row_of = [&](int half) { return tile.row + half * group_rows; };
    if (!T::cuts_k && gemm_.shares == PairShares::x) {
      copy_box_to_blocks(to + block_ * half_x_bytes, &gemm_.x, k, row_of(block_), 0, 0, 0, full,
                         both_blocks);
      return;
    }
    for (int half = 0; half < 2; ++half) {
      copy_box(to + half * half_x_bytes, &gemm_.x, k, row_of(half), 0, 0, 0, full);
    }
  }

  const Gemm& gemm_;
  const Places& places_;
  int first_step_, steps_, stages_, block_;
  std::uint64_t policy_;
  int stage_ = 0;
  std::uint32_t odd_ = 0;  // after the first round, when all stages are in use
  std::uint32_t scales_at_ = 0;
};

}  // namespace troupe::cuda::scaled
