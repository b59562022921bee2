// GEMMs of many rows of 8-bit codes on Hopper's tensor cores (wgmma), by pairs of blocks that each
// get half of what both read from the copy engine. In each block one warp makes the copy engine
// bring tiles to shared memory, and two groups of four warps multiply and write 64 rows each.
#include <algorithm>

#include "models/ops/cuda/common/cache_policy.cuh"
#include "models/ops/cuda/common/cluster.cuh"
#include "models/ops/cuda/common/ptx_sm90.cuh"
#include "models/ops/cuda/common/tensor_map.hpp"
#include "models/ops/cuda/common/vec8.cuh"
#include "models/ops/cuda/gemm/scaled_gemm.hpp"
#include "models/ops/cuda/gemm/scaled_gemm_tiling.hpp"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace cuda {
namespace {

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
/// Steps of k after which sums are added to those in fp32.
constexpr int steps_per_sum = 4;
constexpr int max_shared = 226 * 1024;

/// `cuts_k`: both blocks of a pair have the same tile.
template <int columns_, bool cuts_k_>
struct Tiling {
  static constexpr int columns = columns_;
  static constexpr bool cuts_k = cuts_k_;
  static constexpr int half_weight_bytes = columns / 2 * row_bytes;
  static constexpr int stage_bytes = x_bytes + 2 * half_weight_bytes;
  static constexpr int sums = columns / 2;  // per thread
  /// Per warp, for its sums on their way out; if k is cut, before that for those it receives.
  static constexpr int warp_bytes = cuts_k ? 32 * sums / 2 * 4 : warp_rows * row_bytes;
  static constexpr int scales_bytes = (columns + tile_rows) * 4;  // of a tile: of the weight, of x
  static constexpr int other_bytes = warps * warp_bytes + 2 * scales_bytes;
  /// Wide tiles are faster with fewer steps under way than find room.
  static constexpr int max_stages = columns == 192 ? 4 : 8;
  static constexpr int stages =
      std::min(max_stages, (max_shared - alignment - other_bytes) / stage_bytes);
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

/// Units of the same rows of the weight are adjacent, so that these are still in the cache.
template <class T>
__device__ __forceinline__ Tile find_tile(const Gemm& gemm, int unit, int block) {
  int row = unit % gemm.row_units, column = unit / gemm.row_units;
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
        block_(block_of_cluster()),
        policy_(make_cache_policy(gemm.row_units == 1)) {}

  __device__ void run() {
    bool is_first = true;
    for_each_tile<T>(gemm_, [&](const Tile& tile) {
      int step = 0;
      if (is_first) {
        // The first weights do not wait for the kernel before.
        for (; step < T::stages; ++step) {
          expect(tile, step, step);
          copy_weights(tile, step, step);
        }
        wait_for_kernels_before();
        copy_scales(tile, 0);
        for (step = 0; step < T::stages; ++step) copy_x(tile, step, step);
        is_first = false;
      }
      for (; step < steps_; ++step) {
        wait_for_bytes(places_.empty + 8 * stage_, odd_);
        expect(tile, step, stage_);
        if (step == 0) copy_scales(tile, stage_);
        copy_weights(tile, step, stage_);
        copy_x(tile, step, stage_);
        if (++stage_ == T::stages) {
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
  int first_step_, steps_, block_;
  std::uint64_t policy_;
  int stage_ = 0;
  std::uint32_t odd_ = 0;  // after the first round, when all stages are in use
  std::uint32_t scales_at_ = 0;
};

/// Multiplies and writes tiles: a thread of the two groups.
template <class T>
class Consumer {
 public:
  __device__ Consumer(const Gemm& gemm, const Places& places, int steps)
      : gemm_(gemm),
        places_(places),
        steps_(steps),
        block_(block_of_cluster()),
        warp_(__shfl_sync(~0U, threadIdx.x / 32, 0)),
        lane_(threadIdx.x % 32),
        passing_(places.passing + warp_ * T::warp_bytes) {}

  __device__ void run() {
    for_each_tile<T>(gemm_, [&](const Tile& tile) {
      float sums[T::sums];
      add_steps(sums);
      if constexpr (T::cuts_k) {
        float own[T::sums / 2];
        exchange(sums, own);
        store(tile, block_ * (T::columns / 2), own);
      } else {
        store(tile, 0, sums);
      }
      scales_at_ ^= T::scales_bytes;
    });
  }

 private:
  /// Says that this warp has read a stage: to all whose copies go there.
  __device__ void release(int stage) const {
    if (T::cuts_k) {
      if (lane_ == 0) arrive(places_.empty + 8 * stage);
    } else {
      if (lane_ < pair_blocks) arrive_in_block(places_.empty + 8 * stage, lane_);
    }
  }

  /// Computes this group's rows of x times the tile's rows of the weight.
  __device__ void add_steps(float (&sums)[T::sums]) {
    const int group = warp_ / 4;
    float parts[T::sums];
#pragma unroll
    for (float& sum : sums) sum = 0.0F;
    int before = -1;
    for (int step = 0; step < steps_; ++step) {
      wait_for_bytes(places_.full + 8 * stage_, odd_);
      const std::uint32_t at = places_.stages + stage_ * T::stage_bytes;
      const std::uint64_t left = tile_descriptor(at + group * half_x_bytes),
                          right = tile_descriptor(at + x_bytes);
      const bool adds = step % steps_per_sum != 0;
      pin(parts);
      open_products();
#pragma unroll
      for (int i = 0; i < row_bytes / 32; ++i) {
        wgmma_e4m3(left + 2 * i, right + 2 * i, adds || i > 0 ? 1 : 0, parts);
      }
      close_products();
      if (before >= 0) {
        wait_for_products<1>();  // those of the step before, whose stage may be overwritten
        release(before);
      }
      before = stage_;
      if (step % steps_per_sum == steps_per_sum - 1 || step == steps_ - 1) {
        wait_for_products<0>();
        release(before);
        before = -1;
        pin(parts);
#pragma unroll
        for (int i = 0; i < T::sums; ++i) sums[i] += parts[i];
      }
      if (++stage_ == T::stages) {
        stage_ = 0;
        odd_ ^= 1;
      }
    }
  }

  /// Sends sums of the other block's half of the columns there, and adds to `own`, of this block's,
  /// those that come.
  __device__ void exchange(const float (&sums)[T::sums], float (&own)[T::sums / 2]) {
    constexpr int quads = T::sums / 8;
    const auto quad_of = [&](int half, int quad) {
      float4 four;
      four.x = half == 0 ? sums[4 * quad] : sums[T::sums / 2 + 4 * quad];
      four.y = half == 0 ? sums[4 * quad + 1] : sums[T::sums / 2 + 4 * quad + 1];
      four.z = half == 0 ? sums[4 * quad + 2] : sums[T::sums / 2 + 4 * quad + 2];
      four.w = half == 0 ? sums[4 * quad + 3] : sums[T::sums / 2 + 4 * quad + 3];
      return four;
    };
    const int other = block_ ^ 1;
    const std::uint32_t to = address_in_block(passing_, other),
                        received = address_in_block(places_.received, other);
#pragma unroll
    for (int quad = 0; quad < quads; ++quad) {
      store_in_block(to + (quad * 32 + lane_) * 16, quad_of(other, quad), received);
    }
    wait_for_bytes(places_.received, 0);
#pragma unroll
    for (int quad = 0; quad < quads; ++quad) {
      const float4 mine = quad_of(block_, quad),
                   theirs = load_shared_quad(passing_ + (quad * 32 + lane_) * 16);
      own[4 * quad] = mine.x + theirs.x;
      own[4 * quad + 1] = mine.y + theirs.y;
      own[4 * quad + 2] = mine.z + theirs.z;
      own[4 * quad + 3] = mine.w + theirs.w;
    }
  }

  /// Writes sums, in wgmma's layout, times their scales: columns of the tile from `from` on.
  /// Through shared memory, so that whole sectors are written.
  template <int count>
  __device__ void store(const Tile& tile, int from, const float (&sums)[count]) {
    constexpr int columns = 2 * count;
    constexpr int chunk = columns % 64 == 0 ? 64 : columns % 32 == 0 ? 32 : 16;
    static_assert(columns % chunk == 0);
    constexpr int units = chunk / unit, rows_at_once = 32 / units;
    const std::uint32_t scales = places_.scales + scales_at_;
    const int first = tile.row + warp_ * warp_rows;
    const std::uint32_t x_scales = scales + 4 * (T::columns + warp_ * warp_rows + lane_ / 4);
    const float upper = load_shared_float(x_scales), lower = load_shared_float(x_scales + 32);
    const auto place_of = [&](int row, int u) {
      return passing_ + row * row_bytes + (u ^ (row % 8)) * 16;
    };
#pragma unroll
    for (int at = 0; at < columns; at += chunk) {
      __syncwarp();
#pragma unroll
      for (int u = 0; u < units; u += 2) {
        std::uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int column = at + unit * (u + i);
          const float2 of_weight = load_shared_pair(scales + 4 * (from + column + lane_ % 4 * 2));
          const float* const four = sums + column / 2;
          pairs[2 * i] = round_pair(four[0] * upper * of_weight.x, four[1] * upper * of_weight.y);
          pairs[2 * i + 1] =
              round_pair(four[2] * lower * of_weight.x, four[3] * lower * of_weight.y);
        }
        store_matrices(place_of(lane_ % warp_rows, u + lane_ / 16), pairs);
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < warp_rows; i += rows_at_once) {
        const int row = i + lane_ / units, u = lane_ % units;
        const int column = tile.column + from + at + unit * u;
        const uint4 eight = load_shared(place_of(row, u));
        if (first + row < gemm_.rows && column < gemm_.n) {
          *reinterpret_cast<uint4*>(gemm_.out + std::size_t(first + row) * gemm_.n + column) =
              eight;
        }
      }
    }
  }

  const Gemm& gemm_;
  const Places& places_;
  int steps_, block_, warp_, lane_;
  std::uint32_t passing_;
  int stage_ = 0;
  std::uint32_t odd_ = 0, scales_at_ = 0;
};

template <class T>
__global__ void __launch_bounds__(threads, 1)
    scaled_gemm_kernel(const __grid_constant__ Gemm gemm) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char shared[];
  __shared__ std::uint64_t full[T::stages], empty[T::stages], received;
  const std::uint32_t begin = shared_address(shared);
  const std::uint32_t stages_at = (begin + alignment - 1) / alignment * alignment;
  const std::uint32_t passing = stages_at + T::stages * T::stage_bytes;
  const Places places{stages_at,
                      passing,
                      passing + warps * T::warp_bytes,
                      shared_address(full),
                      shared_address(empty),
                      shared_address(&received)};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < T::stages; ++stage) {
      open_barrier(places.full + 8 * stage);
      open_barrier(places.empty + 8 * stage, T::cuts_k ? warps : pair_blocks * warps);
    }
    open_barrier(places.received);
    show_barriers();
    if constexpr (T::cuts_k) expect_bytes(places.received, warps * T::warp_bytes);
  }
  if (threadIdx.x == consumers) {
    prefetch_map(gemm.weight);
    prefetch_map(gemm.x);
  }
  meet_in_cluster();  // the other block's barriers are initialised
  const int part = T::cuts_k ? block_of_cluster() : 0, parts = T::cuts_k ? 2 : 1;
  const int first = gemm.k_steps * part / parts;
  const int steps = gemm.k_steps * (part + 1) / parts - first;
  if (threadIdx.x >= consumers) {
    leave_registers<producer_registers>();
    if (threadIdx.x / 32 == warps) {
      if (threadIdx.x == consumers) Producer<T>(gemm, places, first, steps).run();
      __syncwarp();
      // Not before its copies are issued: blocks of the next kernel would crowd on multiprocessors
      // that have none of this one.
      let_next_kernel_start();
    }
  } else {
    take_registers<consumer_registers>();
    wait_for_kernels_before();  // which may read what is written here
    Consumer<T>(gemm, places, steps).run();
  }
  __syncwarp();
  meet_in_cluster();  // no block ends while the other writes to its shared memory
#endif
}

template <class T>
cudaError_t launch(const ScaledGemm& wanted, PairShares shares, cudaStream_t stream) {
  const auto n = static_cast<std::uint64_t>(wanted.n), k = static_cast<std::uint64_t>(wanted.k);
  const auto rows = static_cast<std::uint64_t>(wanted.rows);
  const auto map_of = [k](const void* data, std::uint64_t count, std::uint32_t box_rows,
                          CUtensorMap& map) {
    const std::uint64_t all = count * k;
    TiledTensor tensor{data, {k, count, 1, 1, 1}, {k, all, all, all}, {tile_k, box_rows, 1, 1, 1}};
    tensor.element_bytes = 1;
    return make_tensor_map(tensor, map);
  };
  Gemm gemm{};
  if (!map_of(wanted.weight, n, T::columns / 2, gemm.weight) ||
      !map_of(wanted.x, rows, group_rows, gemm.x)) {
    return cudaErrorInvalidValue;
  }
  gemm.weight_scales = wanted.weight_scales;
  gemm.x_scales = wanted.x_scales;
  gemm.out = static_cast<bf16*>(wanted.out);
  gemm.rows = static_cast<int>(rows);
  gemm.n = static_cast<int>(n);
  gemm.k_steps = static_cast<int>((k + tile_k - 1) / tile_k);
  if (gemm.k_steps < (T::cuts_k ? 2 : 1) * T::stages) return cudaErrorInvalidValue;
  const auto units_of = [&](std::int64_t all, int size, bool pairs) {
    return static_cast<int>(blocks_of(all, pairs ? 2 * size : size));
  };
  gemm.row_units = units_of(wanted.rows, tile_rows, shares == PairShares::weight);
  gemm.column_units = units_of(wanted.n, T::columns, shares == PairShares::x);
  gemm.shares = shares;
  auto* const kernel = scaled_gemm_kernel<T>;
  const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::shared_bytes);
  if (allowed != cudaSuccess) return allowed;
  const int pairs = multiprocessors() / pair_blocks, units = gemm.row_units * gemm.column_units;
  if (T::cuts_k && units > pairs) return cudaErrorInvalidValue;
  const auto blocks = static_cast<unsigned>(std::min(units, pairs) * pair_blocks);
  return launch_early_as(dim3(pair_blocks), kernel, {dim3(blocks), threads, T::shared_bytes},
                         stream, gemm);
}

template <int columns>
cudaError_t launch_columns(const ScaledGemm& gemm, PairShares shares, cudaStream_t stream) {
  if (shares == PairShares::tile) return launch<Tiling<columns, true>>(gemm, shares, stream);
  return launch<Tiling<columns, false>>(gemm, shares, stream);
}

}  // namespace
}  // namespace cuda

using namespace cuda;

cudaError_t launch_scaled_gemm(const ScaledGemm& gemm, ScaledGemmTiling tiling,
                               cudaStream_t stream) {
  switch (tiling.columns) {
    case 64:
      return launch_columns<64>(gemm, tiling.shares, stream);
    case 96:
      return launch_columns<96>(gemm, tiling.shares, stream);
    case 128:
      return launch_columns<128>(gemm, tiling.shares, stream);
    case 192:
      return launch_columns<192>(gemm, tiling.shares, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace troupe
