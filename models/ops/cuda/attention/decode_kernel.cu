#include "models/ops/cuda/attention/decode_kernel.hpp"
#include "models/ops/cuda/attention/decode_work.cuh"
#include "models/ops/cuda/attention/head_lanes.cuh"
#include "models/ops/cuda/attention/online_softmax.cuh"
#include "models/ops/cuda/attention/page_queue.cuh"
#include "models/ops/cuda/common/mma_m16n8k16.cuh"
#include "models/ops/cuda/common/ptx_sm90.cuh"
#include "models/ops/cuda/common/tensor_map.hpp"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace cuda {
namespace {

constexpr int page = attention_page;
constexpr int tile_heads = decode_tile_heads;
static_assert(tile_heads == tile_columns);
constexpr int swizzle_alignment = 1024;

template <int dim>
using WarpSoftmax = OnlineSoftmax<dim, FusibleArithmetic>;

/// Rows are swizzled in shared memory where a multiprocessor has one block at once (decode_blocks):
/// with more, memory is the limit, and copies of whole pages, which are one piece of it, read it 3
/// to 6 % faster.
template <int dim, int blocks>
constexpr bool swizzles = blocks == 1 && dim % 64 == 0;

/// A block per part, KV head and `tiles` of 8 of its query heads. `early`: values are in registers
/// before their page is given back, which leaves the queue more time and other things fewer
/// registers.
template <int dim, int tiles, int warps, int stages, int blocks, bool early>
__global__ void __launch_bounds__(warps * 32, blocks)
    attend_one_row(const __grid_constant__ DecodePass pass, const __grid_constant__ PageMaps maps) {
#if __CUDA_ARCH__ >= 900
  constexpr int columns = tiles * tile_heads;
  using Lanes = HeadLanes<dim>;
  using Rows = Bf16Rows<dim, swizzles<dim, blocks>>;
  using Queue = PageQueue<Rows, page, warps, stages, DecodePass, DecodeWork<columns>>;
  constexpr int value_steps = Lanes::value_steps;
  constexpr int row_floats = dim + 8;  // of a warp's sums, that fit where its pages were
  constexpr int warp_units = stages * Queue::units;
  static_assert(columns * row_floats * sizeof(float) <= warp_units * sizeof(uint4));
  static_assert(max_decode_parts * columns * sizeof(float2) <= warps * warp_units * sizeof(uint4));
  extern __shared__ __align__(128) uint4 unaligned[];
  uint4* memory = unaligned;
  __shared__ std::uint64_t barriers[warps][stages];
  __shared__ float2 warp_scales[warps][columns];
  __shared__ bool is_last;
  let_next_kernel_start();
  // The plan, the tables and all keys but the last have been there since before this pass.
  const DecodeWork<columns> work(pass, blockIdx.x);
  if (work.pages == 0) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, eighth = lane / 4, fourth = lane % 4;
  if constexpr (Rows::is_swizzled) {
    memory += -shared_address(unaligned) % swizzle_alignment / sizeof(uint4);
  }
  Queue queue(pass, work, memory + warp * warp_units, barriers[warp], &maps);
  int requested = 0;
  while (requested < min(stages, queue.size()) && !work.may_be_new(queue.page_of(requested))) {
    queue.request(requested++);
  }
  wait_for_kernels_before();
  while (requested < min(stages, queue.size())) queue.request(requested++);

  KeyRow<dim> query[tiles];
#pragma unroll
  for (int t = 0; t < tiles; ++t) {
    const int head = t * tile_heads + eighth;
    if (head < work.heads) query[t].read(pass.q + (work.first_head + head) * dim, fourth);
  }
  WarpSoftmax<dim> softmax[tiles];
  for (int turn = 0; turn < queue.size(); ++turn) {
    // Rows behind the last position hold anything: the last one stands for them, at weight 0.
    const int there = work.positions_of(queue.page_of(turn));
    const int seen_from = work.first_seen(queue.page_of(turn));
    const auto row = [&](const uint4* first, int position) {
      const int at = min(position, there - 1);
      if constexpr (Rows::is_swizzled) {
        return SwizzledRow<page>{first, at};
      } else {
        return first + at * Lanes::row_units;
      }
    };
    const auto top = row(queue.keys(turn), eighth), bottom = row(queue.keys(turn), eighth + 8);
    queue.wait(turn);
    float scores[tiles][4] = {};
    add_products<dim, tiles>(top, bottom, fourth, query, scores);
    const auto value_row = [&](int i) {
      return row(queue.values(turn), 2 * fourth + i % 2 + 8 * (i / 2));
    };
    const auto give_page_back = [&] {
      __syncwarp();  // all have read the page: the next may take its place
      queue.request(turn + stages);
    };
    ValueRows<dim> values;
    if constexpr (early) {
#pragma unroll
      for (int c = 0; c < value_steps; ++c) values.read(c, eighth, value_row);
      give_page_back();
    }
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int position = eighth + 8 * (i / 2);
        const bool is_seen = position >= seen_from && position < there;
        scores[t][i] = is_seen ? capped_score(scores[t][i] * pass.scale, pass.soft_cap) : -INFINITY;
      }
      softmax[t].add_scores(scores[t]);
    }
    const auto add = [&](const Terms(&terms)[tiles]) {
#pragma unroll
      for (int c = 0; c < value_steps; ++c) {
        if constexpr (!early) values.read(c, eighth, value_row);
        add_values<dim, tiles>(c, values, terms, softmax);
      }
    };
    if constexpr (tiles == 1) {
      add({Terms(scores[0])});
    } else {
      add({Terms(scores[0]), Terms(scores[1])});
    }
    if constexpr (!early) give_page_back();
  }

  const auto warp_sums = [&](int of, int head) {
    return reinterpret_cast<float*>(memory + of * warp_units) + head * row_floats;
  };
#pragma unroll
  for (int t = 0; t < tiles; ++t) {
    const int first = t * tile_heads;
    softmax[t].store(work.heads - first, warp_scales[warp] + first,
                     [&](int head) { return warp_sums(warp, first + head); });
  }
  __syncthreads();
  join_warps<dim, warps>(pass, work, warp_scales, warp_sums);
  if (work.part.parts == 1) return;
  if (!is_last_item(pass.finished + work.slot(pass, 0), work.part.parts, is_last)) return;
  join_parts<dim>(pass, work, reinterpret_cast<float2*>(memory));
#endif
}

/// Describes the cache to the copy engine. False if the driver refuses.
template <int dim>
bool make_page_maps(const DecodePass& pass, PageMaps& maps) {
  constexpr std::uint64_t row = dim, positions = std::uint64_t{1} << 31;  // more than there are
  const auto map = [](const bf16* rows, CUtensorMap& to) {
    return make_tensor_map({.data = rows,
                            .sizes = {64, positions, row / 64, 1, 1},
                            .strides = {row, 64, row, row},
                            .box = {64, page, dim / 64, 1, 1}},
                           to);
  };
  return map(pass.keys, maps.keys) && map(pass.values, maps.values);
}

template <int dim, int tiles, int warps, int stages, int blocks>
cudaError_t launch(const DecodePass& pass, cudaStream_t stream) {
  constexpr bool swizzled = swizzles<dim, blocks>;
  constexpr int bytes = warps * stages * 2 * page * dim * static_cast<int>(sizeof(bf16)) +
                        (swizzled ? swizzle_alignment : 0);
  constexpr bool early = dim * tiles <= 128;
  const auto kernel = attend_one_row<dim, tiles, warps, stages, blocks, early>;
  // Of this thread's device: another one's kernel has its own.
  const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (allowed != cudaSuccess) return allowed;
  const Grid grid{dim3(static_cast<unsigned>(pass.entries * pass.row_blocks)), warps * 32, bytes};
  PageMaps maps{};  // not used unless rows are swizzled
  if (swizzled && !make_page_maps<dim>(pass, maps)) return cudaErrorInvalidValue;
  return launch_early(kernel, grid, stream, pass, maps);
}

/// Launches so many blocks of a multiprocessor at once, with as many pages under way as its shared
/// memory holds. Heads of 80 and 96 have small pages: more warps, or more pages of each, keep
/// memory busy; two tiles of heads leave registers for four warps.
template <int dim, int tiles>
cudaError_t launch(const DecodePass& pass, int blocks, cudaStream_t stream) {
  constexpr bool has_small_pages = dim == 80 || dim == 96;
  if constexpr (dim > 128) {
    constexpr int most = dim <= 192 ? 3 : 2;  // warps of the smaller blocks
    switch (blocks) {
      case 1:
        return launch<dim, tiles, 2 * most, 3, 1>(pass, stream);
      case 2:
        return launch<dim, tiles, most, 3, 2>(pass, stream);
      default:
        return launch<dim, tiles, most, 2, 3>(pass, stream);
    }
  } else {
    constexpr int warps = has_small_pages && tiles == 1 ? 8 : 4;
    constexpr int stages = has_small_pages ? 3 : 2;
    switch (blocks) {
      case 1:
        return launch<dim, tiles, 8, 3, 1>(pass, stream);
      case 2:
        return launch < dim, tiles, warps, warps == 8 ? 2 : 3, 2 > (pass, stream);
      default:
        return launch<dim, tiles, 4, stages, 3>(pass, stream);
    }
  }
}

template <int dim>
cudaError_t launch(const DecodePass& pass, int blocks, cudaStream_t stream) {
  if constexpr (decode_columns(dim, max_decode_columns) > tile_heads) {
    if (pass.group > tile_heads) return launch<dim, 2>(pass, blocks, stream);
  }
  return launch<dim, 1>(pass, blocks, stream);
}

}  // namespace
}  // namespace cuda

int decode_blocks(std::int64_t items) {
  const double each = static_cast<double>(items) / cuda::multiprocessors();
  return each >= 6 ? 3 : each >= 2.5 ? 2 : 1;
}

cudaError_t launch_decode_attention(const DecodePass& pass, int blocks, int head_dim,
                                    cudaStream_t stream) {
  switch (head_dim) {
    case 64:
      return cuda::launch<64>(pass, blocks, stream);
    case 80:
      return cuda::launch<80>(pass, blocks, stream);
    case 96:
      return cuda::launch<96>(pass, blocks, stream);
    case 112:
      return cuda::launch<112>(pass, blocks, stream);
    case 128:
      return cuda::launch<128>(pass, blocks, stream);
    case 192:
      return cuda::launch<192>(pass, blocks, stream);
    case 256:
      return cuda::launch<256>(pass, blocks, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace troupe
