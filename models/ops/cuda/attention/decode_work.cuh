// What decode kernels share, whatever the cache holds: a block's part of a row, and how the parts
// of a row are combined.
#pragma once

#include <cstdint>

#include "models/ops/cuda/attention/decode_kernel.hpp"
#include "models/ops/cuda/attention/online_softmax.cuh"
#include "parallel/device/cuda/device_math.cuh"

namespace troupe::cuda {

/// A block's part of a row, for up to `columns` of the query heads that share a KV head.
template <int columns>
struct DecodeWork {
  DecodePart part;
  int index;  // of the block among those of its row
  int kv_head, pages, pages_per_block;
  int first_in_layer, heads;  // of the query heads
  std::int64_t first_head;    // of q and of the output

  __device__ DecodeWork(const DecodePass& pass, int block)
      : part(pass.items[block / pass.row_blocks]),
        index(block % pass.row_blocks),
        kv_head(index / (pass.row_blocks / pass.kv_heads)),
        pages((part.positions + attention_page - 1) / attention_page),
        pages_per_block(pass.pages_per_block) {
    const int in_group = index % (pass.row_blocks / pass.kv_heads) * columns;
    first_in_layer = kv_head * pass.group + in_group;
    heads = min(pass.group - in_group, columns);
    first_head = std::int64_t{part.row} * pass.kv_heads * pass.group + first_in_layer;
  }

  __device__ std::int64_t slot(const DecodePass& pass, int of) const {
    return std::int64_t{part.slot + of} * pass.row_blocks + index;
  }
  __device__ int first_page() const { return part.first_page; }
  __device__ static constexpr int skipped_pages() { return 0; }
  __device__ std::int32_t table() const { return part.table; }
  __device__ int positions_of(int page_of_part) const {
    return min(part.positions - page_of_part * attention_page, attention_page);
  }
  /// The first position of the page that the row sees.
  __device__ int first_seen(int page_of_part) const { return page_of_part == 0 ? part.hidden : 0; }
  /// Whether the kernel before this one may write keys of the page: the row's own, or those of a
  /// row that fills a block in this pass which this row shares, the last before its own.
  __device__ bool may_be_new(int page_of_part) const {
    return page_of_part + 1 + pages_per_block >= pages;
  }
  /// The score that a head's softmax has besides those of positions.
  __device__ float sink(const DecodePass& pass, int head) const {
    return pass.sinks == nullptr ? -INFINITY : pass.sinks[first_in_layer + head] * log2_e;
  }
};

/// Adds the parts of the prefix that the row shares with others.
template <int dim, int columns>
__device__ __forceinline__ void add_prefix(const DecodePass& pass, const DecodeWork<columns>& work,
                                           int head, int element, PartSum& sum) {
#pragma unroll 4
  for (int p = 0; p < work.part.prefix_parts; ++p) {
    const std::int64_t slot = std::int64_t{work.part.prefix_slot + p} * pass.row_blocks;
    const std::int64_t column = (slot + work.index) * columns + head;
    const float2 scale = __ldcg(pass.prefix_scales + column);
    const auto* const from = pass.prefix_sums + column * dim + element;
    sum.add_part({__ldcg(reinterpret_cast<const float4*>(from)), scale.y, scale.x});
  }
}

/// Called by the whole block that ended last: puts the parts of its row together. `scales` is
/// shared memory for one of each part and head.
template <int dim, int columns>
__device__ void join_parts(const DecodePass& pass, const DecodeWork<columns>& work,
                           float2* scales) {
  const int parts = work.part.parts, heads = work.heads;
  for (int i = threadIdx.x; i < parts * heads; i += blockDim.x) {
    scales[i] = __ldcg(pass.scales + work.slot(pass, i / heads) * columns + i % heads);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < heads * dim / 4; i += blockDim.x) {
    const int head = i / (dim / 4), element = i % (dim / 4) * 4;
    float maximum = -INFINITY;
    for (int p = 0; p < parts; ++p) maximum = fmaxf(maximum, scales[p * heads + head].x);
    PartSum all;
#pragma unroll 8
    for (int p = 0; p < parts; ++p) {
      const std::int64_t from = (work.slot(pass, p) * columns + head) * dim + element;
      all.add_below(maximum, scales[p * heads + head],
                    __ldcg(reinterpret_cast<const float4*>(pass.sums + from)));
    }
    add_prefix<dim>(pass, work, head, element, all);
    all.add_sink(work.sink(pass, head));
    all.write(pass.out + (work.first_head + head) * dim + element);
  }
}

/// Called by the whole block, of which each warp has its sums of head h at warp_sums(warp, h): the
/// row's output, or a part of it.
template <int dim, int warps, int columns, class WarpSums>
__device__ __forceinline__ void join_warps(const DecodePass& pass, const DecodeWork<columns>& work,
                                           const float2 (&warp_scales)[warps][columns],
                                           const WarpSums& warp_sums) {
  constexpr int threads = warps * 32;
  for (int i = threadIdx.x; i < work.heads * dim / 4; i += threads) {
    const int head = i / (dim / 4), element = i % (dim / 4) * 4;
    PartSum sum = sum_of_warps(warp_scales, warp_sums, head, element);
    if (work.part.parts == 1) {
      add_prefix<dim>(pass, work, head, element, sum);
      sum.add_sink(work.sink(pass, head));
      sum.write(pass.out + (work.first_head + head) * dim + element);
    } else {
      const std::int64_t column = work.slot(pass, work.part.index) * columns + head;
      sum.leave<dim>(pass.sums, pass.scales, column, element);
    }
  }
}

}  // namespace troupe::cuda
