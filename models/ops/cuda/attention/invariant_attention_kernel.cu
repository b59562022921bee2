// Attention with one order of addition for every row: a part of its context is split into four
// strands of pages, a warp each, with the online softmax; the strands are combined, then the parts,
// in order. Operations that a compiler might fuse in one kernel but not in another are written out
// (__fmul_rn and so on), as kernels of all sizes must give the same bits.
#include "models/ops/cuda/attention/head_lanes.cuh"
#include "models/ops/cuda/attention/invariant_attention_kernel.hpp"
#include "models/ops/cuda/attention/online_softmax.cuh"
#include "models/ops/cuda/attention/page_queue.cuh"
#include "models/ops/cuda/common/mma_m16n8k16.cuh"
#include "models/ops/cuda/common/ptx_sm90.cuh"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr int page = attention_page, warps = 4, threads = warps * 32, stages = 2;
constexpr int part_turns = invariant_part_pages / warps;  // pages per warp and part

/// A block's item for one KV head.
struct Work {
  InvariantItem item;
  int index;  // of the block among those of its item
  int kv_head;
  int first_in_layer, group;  // of the query heads
  int last;                   // position of the last row
  int pages;                  // in the item's parts, as far as the last row sees
  int skipped;                // of these, before what the first row sees

  __device__ Work(const InvariantPass& pass, int block)
      : item(pass.items[block / pass.row_blocks]),
        index(block % pass.row_blocks),
        kv_head(index / (pass.row_blocks / pass.kv_heads)),
        last(item.position + item.rows - 1),
        pages(min(last / page + 1 - first_page(), item.parts * invariant_part_pages)),
        skipped(max(first_seen(pass, item.position) / page - first_page(), 0)) {
    const int in_group = index % (pass.row_blocks / pass.kv_heads) * max_invariant_heads;
    first_in_layer = kv_head * pass.group + in_group;
    group = min(pass.group - in_group, max_invariant_heads);
  }

  /// The first position that the row at `position` sees.
  __device__ static int first_seen(const InvariantPass& pass, int position) {
    return pass.window == 0 ? 0 : max(position - pass.window + 1, 0);
  }
  /// The first part that a row sees.
  __device__ static int first_part(const InvariantPass& pass, int position) {
    return first_seen(pass, position) / (invariant_part_pages * page);
  }
  __device__ int skipped_pages() const { return skipped; }
  __device__ std::int32_t table() const { return item.table; }
  __device__ int first_page() const { return item.first_part * invariant_part_pages; }
  /// Number of positions of a page, counted from the item's first, that the last row sees.
  __device__ int positions_of(int in_item) const {
    return min(last + 1 - (first_page() + in_item) * page, page);
  }
  /// True if the item's rows are of several sequences, each with a slot of its own.
  __device__ bool is_shared() const { return item.items == 0; }
  /// The row of the item's column c.
  __device__ InvariantRow row(const InvariantPass& pass, int column) const {
    const int in_item = column / group;
    if (is_shared()) return pass.rows[item.row + in_item];
    return {item.row + in_item, item.position + in_item, item.slot, item.items};
  }
  __device__ std::int64_t slot(const InvariantPass& pass, const InvariantRow& of, int part) const {
    return std::int64_t{of.slot + part} * pass.row_blocks + index;
  }
  /// Where the sums of a part of column c of a row are left.
  __device__ std::int64_t place(const InvariantPass& pass, const InvariantRow& of, int part,
                                int column) const {
    return slot(pass, of, part) * pass.slot_columns + (is_shared() ? column % group : column);
  }
  /// Number of columns that are queries of the item's rows.
  __device__ int used() const { return item.rows * group; }
  /// The offset of the head of column c of a row, in heads of q and of the output.
  __device__ std::int64_t head(const InvariantPass& pass, const InvariantRow& of,
                               int column) const {
    return std::int64_t{of.row} * pass.kv_heads * pass.group + first_in_layer + column % group;
  }
  /// The sink of column c's head, times log2(e); -infinity: none.
  __device__ float sink(const InvariantPass& pass, int column) const {
    if (pass.sinks == nullptr) return -INFINITY;
    return __fmul_rn(pass.sinks[first_in_layer + column % group], log2_e);
  }
};

/// Of a strand of one part.
template <int dim>
using StrandSoftmax = OnlineSoftmax<dim, RoundedArithmetic>;

/// Called by the whole block that ended last: combines the parts of columns [first, end).
template <int dim>
__device__ void join_parts(const InvariantPass& pass, const Work& work, int first, int end) {
  constexpr int quads = dim / 4;
  for (int i = threadIdx.x; i < (end - first) * quads; i += threads) {
    const int column = first + i / quads, element = i % quads * 4;
    const InvariantRow row = work.row(pass, column);
    const int parts = row.position / (invariant_part_pages * page) + 1;
    PartSum all;
    for (int p = Work::first_part(pass, row.position); p < parts; ++p) {
      const std::int64_t from = work.place(pass, row, p, column);
      const float2 scale = __ldcg(pass.scales + from);
      const PartSum part{__ldcg(reinterpret_cast<const float4*>(pass.sums + from * dim + element)),
                         scale.y, scale.x};
      all.add_part(part);
    }
    all.add_sink(work.sink(pass, column));
    all.write(pass.out + work.head(pass, row, column) * dim + element);
  }
}

/// Called by the whole block, which has left its parts: combines those of the rows of which all
/// parts are there. `is_last` is shared memory.
template <int dim>
__device__ void join_complete_rows(const InvariantPass& pass, const Work& work, bool& is_last) {
  const int columns = work.is_shared() ? work.group : work.used();  // with one counter
  for (int first = 0; first < work.used(); first += columns) {
    const InvariantRow row = work.row(pass, first);
    const std::int64_t slot = work.slot(pass, row, Work::first_part(pass, row.position));
    if (is_last_item(pass.finished + slot, row.items, is_last)) {
      join_parts<dim>(pass, work, first, first + columns);
    }
  }
}

/// The columns of an item in a lane's layout: 16 bytes of each chunk of the query of column lane /
/// 4 of a tile, zeros after the last, and for columns 2 (lane % 4) and the next the last position
/// that they see.
template <int dim, int tiles>
struct Columns {
  KeyRow<dim> query[tiles];
  int limit[tiles][2];

  __device__ __forceinline__ void read(const InvariantPass& pass, const Work& work) {
    const int lane = threadIdx.x % 32, eighth = lane / 4, fourth = lane % 4;
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      const int column = t * tile_columns + eighth;
      query[t] = {};
      if (column < work.used()) {
        query[t].read(pass.q + work.head(pass, work.row(pass, column), column) * dim, fourth);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        limit[t][i] =
            min(work.item.position + (t * tile_columns + 2 * fourth + i) / work.group, work.last);
      }
    }
  }
};

/// Adds the page of `turn`, and requests the one `stages` turns later into its memory.
template <int dim, int tiles, class Queue>
__device__ __forceinline__ void add_page(Queue& queue, int turn, const Work& work,
                                         const InvariantPass& pass, const Columns<dim, tiles>& of,
                                         StrandSoftmax<dim> (&softmax)[tiles]) {
  using Lanes = HeadLanes<dim>;
  const int lane = threadIdx.x % 32, eighth = lane / 4, fourth = lane % 4;
  // Rows after the last position may hold anything: the last one stands for them, at weight 0.
  const int in_item = queue.page_of(turn), there = work.positions_of(in_item);
  const int first_position = (work.first_page() + in_item) * page;
  const auto row = [&](const uint4* first, int position) {
    return first + min(position, there - 1) * Lanes::row_units;
  };
  const auto value_row = [&](int i) {
    return row(queue.values(turn), 2 * fourth + i % 2 + 8 * (i / 2));
  };
  constexpr bool early = dim * tiles <= 256;  // values fit in registers beside all else
  const auto give_page_back = [&] {
    __syncwarp();  // all have read the page: the next may take its place
    queue.request(turn + stages);
  };
  queue.wait(turn);
  float scores[tiles][4] = {};
  add_products<dim, tiles>(row(queue.keys(turn), eighth), row(queue.keys(turn), eighth + 8), fourth,
                           of.query, scores);
  ValueRows<dim> values;
  if constexpr (early) {
#pragma unroll
    for (int c = 0; c < Lanes::value_steps; ++c) values.read(c, eighth, value_row);
    give_page_back();
  }
#pragma unroll
  for (int t = 0; t < tiles; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int position = first_position + eighth + 8 * (i / 2);
      const float score = capped_score(__fmul_rn(scores[t][i], pass.scale), pass.soft_cap);
      const int limit = of.limit[t][i % 2];
      const bool is_seen = position <= limit && position >= Work::first_seen(pass, limit);
      scores[t][i] = is_seen ? score : -INFINITY;
    }
    softmax[t].add_scores(scores[t]);
  }
  const auto add = [&](const Terms(&terms)[tiles]) {
#pragma unroll
    for (int c = 0; c < Lanes::value_steps; ++c) {
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

/// One block per item and KV head.
template <int dim, int tiles>
__global__ void __launch_bounds__(threads, dim <= 128 ? invariant_blocks : 1)
    attend_rows_steadily(const __grid_constant__ InvariantPass pass) {
#if __CUDA_ARCH__ >= 900
  using Queue = PageQueue<Bf16Rows<dim>, page, warps, stages, InvariantPass, Work>;
  constexpr int quads = dim / 4, columns = tiles * tile_columns, pitch = dim + 8;
  constexpr int each =
      (columns * quads + threads - 1) / threads;  // groups of four elements that a thread combines
  extern __shared__ __align__(128) uint4 memory[];
  __shared__ std::uint64_t barriers[warps][stages];
  __shared__ float2 scales[warps][columns];
  __shared__ bool is_last;
  let_next_kernel_start();
  // The plan was written before this pass; pages may be another sequence's new ones.
  const Work work(pass, blockIdx.x);
  if (work.item.rows == 0) return;
  const int warp = threadIdx.x / 32, used = work.used();
  auto* const staged = reinterpret_cast<float*>(memory + warps * stages * Queue::units);
  Queue queue(pass, work, memory + warp * stages * Queue::units, barriers[warp]);
  wait_for_kernels_before();
#pragma unroll
  for (int turn = 0; turn < stages; ++turn) queue.request(turn);
  Columns<dim, tiles> of;
  of.read(pass, work);

  const auto strand_sums = [&](int strand, int column) {
    return staged + (strand * columns + column) * pitch;
  };
  PartSum joined[each];
  for (int part = 0; part < work.item.parts; ++part) {
    StrandSoftmax<dim> softmax[tiles];
    const int end = min(queue.size(), (part + 1) * part_turns - queue.first());
    for (int turn = max(part * part_turns - queue.first(), 0); turn < end; ++turn) {
      add_page(queue, turn, work, pass, of, softmax);
    }
    __syncthreads();  // the strands of the previous part have been combined
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      const int first = t * tile_columns;
      softmax[t].store(tile_columns, &scales[warp][first],
                       [&](int column) { return strand_sums(warp, first + column); });
    }
    __syncthreads();
    const int first_position = (work.item.first_part + part) * invariant_part_pages * page;
#pragma unroll
    for (int e = 0; e < each; ++e) {
      const int i = threadIdx.x + e * threads, column = i / quads, element = i % quads * 4;
      // A row does not see the parts after it, nor those before its window.
      if (column >= used) continue;
      const InvariantRow row = work.row(pass, column);
      if (first_position > row.position ||
          first_position + invariant_part_pages * page <= Work::first_seen(pass, row.position)) {
        continue;
      }
      const PartSum sum = sum_of_warps(scales, strand_sums, column, element);
      if (work.item.items == 1) {
        joined[e].add_part(sum);
      } else {
        const int in_row = work.item.first_part + part;
        sum.leave<dim>(pass.sums, pass.scales, work.place(pass, row, in_row, column), element);
      }
    }
  }
  if (work.item.items != 1) return join_complete_rows<dim>(pass, work, is_last);
#pragma unroll
  for (int e = 0; e < each; ++e) {
    const int i = threadIdx.x + e * threads, column = i / quads, element = i % quads * 4;
    if (column >= used) continue;
    joined[e].add_sink(work.sink(pass, column));
    joined[e].write(pass.out + work.head(pass, work.row(pass, column), column) * dim + element);
  }
#endif
}

template <int dim, int tiles>
cudaError_t launch(const InvariantPass& pass, cudaStream_t stream) {
  constexpr int columns = tiles * tile_columns;
  constexpr int bytes = warps * stages * 2 * page * dim * static_cast<int>(sizeof(bf16)) +
                        warps * columns * (dim + 8) * static_cast<int>(sizeof(float));
  const auto kernel = attend_rows_steadily<dim, tiles>;
  // Set per device: each device has its own instance of the kernel.
  const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (allowed != cudaSuccess) return allowed;
  const Grid grid{dim3(static_cast<unsigned>(pass.entries * pass.row_blocks)), threads, bytes};
  return launch_early(kernel, grid, stream, pass);
}

template <int dim>
cudaError_t launch(const InvariantPass& pass, InvariantColumns columns, cudaStream_t stream) {
  return columns == InvariantColumns::eight ? launch<dim, 1>(pass, stream)
                                            : launch<dim, 2>(pass, stream);
}

}  // namespace
}  // namespace cuda

cudaError_t launch_invariant_attention(const InvariantPass& pass, InvariantColumns columns,
                                       int head_dim, cudaStream_t stream) {
  switch (head_dim) {
    case 64:
      return cuda::launch<64>(pass, columns, stream);
    case 80:
      return cuda::launch<80>(pass, columns, stream);
    case 96:
      return cuda::launch<96>(pass, columns, stream);
    case 112:
      return cuda::launch<112>(pass, columns, stream);
    case 128:
      return cuda::launch<128>(pass, columns, stream);
    case 192:
      return cuda::launch<192>(pass, columns, stream);
    case 256:
      return cuda::launch<256>(pass, columns, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace troupe
