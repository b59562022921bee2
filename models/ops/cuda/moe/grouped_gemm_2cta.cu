// Grouped GEMMs for experts with many rows on Hopper's tensor cores (wgmma), by clusters of two
// blocks. In each block one group of four warps fetches tiles to shared memory, and two groups
// multiply and write 64 rows each. The copy engine brings weights, to both blocks at once if they
// share them; threads copy rows, which are scattered.
#include "models/ops/cuda/common/cluster.cuh"
#include "models/ops/cuda/common/ptx_sm90.cuh"
#include "models/ops/cuda/common/tensor_map.hpp"
#include "models/ops/cuda/moe/grouped_gemm_2cta.hpp"
#include "models/ops/cuda/moe/grouped_tiles_2cta.cuh"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace cuda {
namespace {

using namespace two_blocks;

/// Offsets in a block's shared memory.
struct Places {
  std::uint32_t stages, passing;  // [stages][rows, columns], [warps][rows]
  std::uint32_t full, empty;      // [stages] barriers
};

/// One thread's copies of a tile's rows in the fetching group: a unit of every 16th. Rows after the
/// tile's last become that row: what is multiplied with them goes nowhere.
template <class Element>
class RowCopies {
 public:
  __device__ RowCopies(const Gemm<Element>& gemm, const Tile& tile, int thread,
                       std::uint32_t stages_at)
      : gemm_(gemm), unit_(thread % units) {
    const int first = thread / units;
    to_ = stages_at + first * row_bytes + ((unit_ ^ (first % units)) * unit_bytes);
#pragma unroll
    for (int i = 0; i < copies; ++i) {
      const int row = min(first + i * rows_at_once, tile.rows - 1);
      x_[i] = gemm.x + row_of_x(gemm, tile.row + row) * gemm.k + unit_ * Element::unit_elements;
    }
  }

  /// Copies columns [k, k + tile_k) to a stage.
  __device__ void copy(std::uint32_t k, int stage) const {
    const bool in_k = k + unit_ * Element::unit_elements < gemm_.k;
#pragma unroll
    for (int i = 0; i < copies; ++i) {
      copy_async(to_ + stage * stage_bytes + i * rows_at_once * row_bytes, x_[i] + k, in_k);
    }
  }

 private:
  static constexpr int rows_at_once = group_threads / units;
  static constexpr int copies = tile_rows / rows_at_once;

  const Gemm<Element>& gemm_;
  int unit_;
  std::uint32_t to_;
  const typename Element::Stored* x_[copies];
};

/// Makes the copy engine bring a step's columns: if shared, this block sends one half to both
/// blocks and the other block the other half. Called by one thread.
template <bool gated, class Element>
__device__ void copy_columns(const Gemm<Element>& gemm, const Tile& tile, int block, int k,
                             std::uint32_t to, std::uint32_t barrier) {
  const int column = tile.column * (gated ? box_columns : tile_columns);
  expect_bytes(barrier, 2 * box_bytes);
  if (tile.shared) {
    copy_box_to_blocks(to + block * box_bytes, &gemm.weights, k,
                       gated ? column : column + block * box_columns, gated ? block : 0,
                       tile.expert, 0, barrier, (1 << cluster_blocks) - 1);
    return;
  }
#pragma unroll
  for (int box = 0; box < 2; ++box) {
    copy_box(to + box * box_bytes, &gemm.weights, k, gated ? column : column + box * box_columns,
             gated ? box : 0, tile.expert, 0, barrier);
  }
}

/// The fetching group: refills stages once both blocks' wgmma have released them.
template <bool gated, class Element>
__device__ void fetch_tiles(const Gemm<Element>& gemm, const TileTable& table, const Places& places,
                            int k_steps, int block) {
  const int thread = static_cast<int>(threadIdx.x) - multiplying, tiles = table.tiles();
  int stage = 0;
  std::uint32_t odd = 1;  // all stages are empty
  for (int number = blockIdx.x / cluster_blocks; number < tiles;
       number += gridDim.x / cluster_blocks) {
    const Tile tile = find_tile(table, gemm.column_tiles, number, block);
    const RowCopies<Element> rows(gemm, tile, thread, places.stages);
    for (int step = 0; step < k_steps; ++step) {
      const std::uint32_t full = places.full + 8 * stage;
      wait_for_bytes(places.empty + 8 * stage, odd);
      if (thread == 0) {
        copy_columns<gated>(gemm, tile, block, step * Element::tile_k,
                            places.stages + stage * stage_bytes + rows_bytes, full);
      }
      rows.copy(step * Element::tile_k, stage);
      arrive_after_copies(full);
      if (++stage == stages) {
        stage = 0;
        odd ^= 1;
      }
    }
  }
}

/// Adds the products of a stage's codes to `sums`, one box of columns after the other: sums of the
/// tensor cores and those in fp32 do not fit a thread's registers for both.
__device__ __forceinline__ void add_codes(std::uint64_t left, std::uint32_t boxes,
                                          float (&sums)[tile_columns / 2]) {
#pragma unroll
  for (int box = 0; box < 2; ++box) {
    float parts[box_columns / 2];
    multiply_tile<E4m3Tiles>(left, tile_descriptor(boxes + box * box_bytes), false, parts);
    wait_for_products<0>();
    pin(parts);
#pragma unroll
    for (int i = 0; i < box_columns / 2; ++i) sums[box * (box_columns / 2) + i] += parts[i];
  }
}

/// A multiplying group: computes each tile and writes it.
template <bool gated, class Element, class Out>
__device__ void multiply_and_store(const Gemm<Element>& gemm, const TileTable& table,
                                   const Places& places, int k_steps, int block, Out* out) {
  const int warp = __shfl_sync(~0U, threadIdx.x / 32, 0), group = warp / 4;
  const int lane = threadIdx.x % 32, first = warp * warp_rows;
  const int tiles = table.tiles(), stride = gridDim.x / cluster_blocks;
  const auto row_to = [&](const Tile& tile) {
    const int row = first + lane % warp_rows, sorted = tile.row + row;
    return gemm.scatter && row < tile.rows ? gemm.source[sorted] : sorted;
  };
  const auto scale_of = [&](const Tile& tile) {
    const int row = first + lane % warp_rows;
    if (!Element::has_scales || row >= tile.rows) return 0.0F;
    return gemm.x_scales[row_of_x(gemm, tile.row + row)];
  };
  const auto release = [&](int stage) {
    if (lane < cluster_blocks) arrive_in_block(places.empty + 8 * stage, lane);
  };
  int number = blockIdx.x / cluster_blocks, stage = 0, to_row = 0;
  std::uint32_t odd = 0;
  float row_scale = 0.0F;
  Tile tile{};
  const auto find = [&] {
    if (number >= tiles) return;
    tile = find_tile(table, gemm.column_tiles, number, block);
    to_row = row_to(tile);
    row_scale = scale_of(tile);
  };
  find();
  while (number < tiles) {
    const bool works = group * group_rows < tile.rows && tile.column < gemm.column_tiles;
    float sums[tile_columns / 2];
    if constexpr (Element::has_scales) {
#pragma unroll
      for (float& sum : sums) sum = 0.0F;
    }
    int before = -1;
    for (int step = 0; step < k_steps; ++step) {
      wait_for_bytes(places.full + 8 * stage, odd);
      show_to_products();
      if (works) {
        const std::uint32_t at = places.stages + stage * stage_bytes;
        const std::uint64_t left = tile_descriptor(at + group * group_rows * row_bytes);
        if constexpr (Element::has_scales) {
          add_codes(left, at + rows_bytes, sums);
        } else {
          multiply_tile<Element>(left, tile_descriptor(at + rows_bytes), step > 0, sums);
        }
      }
      if constexpr (Element::has_scales) {
        release(stage);
      } else {
        // The previous step's wgmma have ended, so its stage may be overwritten.
        wait_for_products<1>();
        if (before >= 0) release(before);
        before = stage;
      }
      if (++stage == stages) {
        stage = 0;
        odd ^= 1;
      }
    }
    const Tile own = tile;
    const int own_to = to_row;
    const float own_scale = row_scale;
    number += stride;
    find();  // while wgmma run
    if constexpr (!Element::has_scales) {
      wait_for_products<0>();
      release(before);
      pin(sums);
    }
    if (works) {
      if constexpr (Element::has_scales) scale_sums<gated>(gemm, own, own_scale, sums);
      store_rows<gated>(gemm, own, first, own_to, sums, places.passing + warp * warp_bytes, out);
    }
  }
}

template <class Element, bool gated, class Out>
__global__ void __launch_bounds__(threads, 1)
    grouped_gemm_2cta_kernel(const __grid_constant__ Gemm<Element> gemm, Out* out) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char shared[];
  __shared__ std::uint64_t full[stages], empty[stages];
  const std::uint32_t begin = shared_address(shared);
  const std::uint32_t stages_at = (begin + alignment - 1) / alignment * alignment;
  const Places places{stages_at, stages_at + stages * stage_bytes, shared_address(full),
                      shared_address(empty)};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < stages; ++stage) {
      open_barrier(places.full + 8 * stage, 1 + group_threads);
      open_barrier(places.empty + 8 * stage, cluster_blocks * multiplying / 32);
    }
    show_barriers();
  }
  begin_early_kernel();
  const TileTable table = make_table(
      gemm, reinterpret_cast<std::int32_t*>(shared + (places.passing - begin) + passing_bytes));
  meet_in_cluster();  // the other block's barriers are initialised
  const int k_steps = static_cast<int>((gemm.k + Element::tile_k - 1) / Element::tile_k);
  const int block = block_of_cluster();
  if (threadIdx.x >= multiplying) {
    leave_registers<fetching_registers>();
    fetch_tiles<gated>(gemm, table, places, k_steps, block);
  } else {
    take_registers<multiplying_registers>();
    multiply_and_store<gated>(gemm, table, places, k_steps, block, out);
  }
  __syncwarp();
  meet_in_cluster();  // no block ends while the other writes to its shared memory
#endif
}

template <class Element, bool gated, class Out>
cudaError_t launch(const GroupedGemm& wanted, cudaStream_t stream) {
  const auto n = static_cast<std::uint64_t>(wanted.n), k = static_cast<std::uint64_t>(wanted.k);
  const auto experts = static_cast<std::uint64_t>(wanted.experts);
  const std::uint64_t width = gated ? n / 2 : n;
  const TiledTensor weights{wanted.weights,
                            {k, width, n / width, experts, 1},
                            {k, width * k, n * k, experts * n * k},
                            {Element::tile_k, box_columns, 1, 1, 1},
                            true,
                            sizeof(typename Element::Stored)};
  Gemm<Element> gemm{};
  if (!make_tensor_map(weights, gemm.weights)) return cudaErrorInvalidValue;
  gemm.x = static_cast<const typename Element::Stored*>(wanted.x);
  gemm.weight_scales = wanted.weight_scales;
  gemm.x_scales = wanted.x_scales;
  gemm.offsets = wanted.offsets;
  gemm.source = wanted.source;
  gemm.k = static_cast<std::uint32_t>(k);
  gemm.top_k = static_cast<std::uint32_t>(wanted.top_k);
  gemm.experts = static_cast<int>(experts);
  gemm.width = static_cast<int>(width);
  gemm.column_tiles = static_cast<int>(blocks_of(wanted.n, tile_columns));
  gemm.gather = wanted.gather;
  gemm.scatter = wanted.scatter;
  auto* const kernel = grouped_gemm_2cta_kernel<Element, gated, Out>;
  const std::size_t shared =
      alignment + stages * stage_bytes + passing_bytes + tile_table_bytes(wanted.experts);
  const cudaError_t allowed = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
  if (allowed != cudaSuccess) return allowed;
  const auto clusters = static_cast<unsigned>(multiprocessors() / cluster_blocks);
  return launch_early_as(dim3(cluster_blocks), kernel,
                         {dim3(clusters * cluster_blocks), threads, shared}, stream, gemm,
                         static_cast<Out*>(wanted.out));
}

template <class Element>
cudaError_t launch_of(const GroupedGemm& gemm, cudaStream_t stream) {
  if (gemm.gated) return launch<Element, true, bf16>(gemm, stream);
  if (gemm.out_dtype == DType::bf16) return launch<Element, false, bf16>(gemm, stream);
  return launch<Element, false, float>(gemm, stream);
}

}  // namespace
}  // namespace cuda

using namespace cuda;

cudaError_t launch_grouped_gemm_2cta(const GroupedGemm& gemm, cudaStream_t stream) {
  return gemm.is_coded() ? launch_of<E4m3Tiles>(gemm, stream) : launch_of<Bf16Tiles>(gemm, stream);
}

}  // namespace troupe
