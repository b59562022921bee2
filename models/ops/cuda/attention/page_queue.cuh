// Keys and values of attention, read by bulk copies.
#pragma once

#include <cstdint>

#include "models/ops/cuda/common/ptx_sm90.cuh"

namespace troupe::cuda {

/// How a cache of bf16, or of codes, holds the keys and the values of a position. `swizzled`: in
/// shared memory rows are SwizzledRow (head_lanes.cuh).
template <int dim, bool swizzled = false>
struct Bf16Rows {
  static constexpr int key_bytes = 2 * dim, value_bytes = 2 * dim, scale_bytes = 0;
  static constexpr bool is_swizzled = swizzled;
};
/// Scales lie behind all rows of a block (CodedPages); in shared memory behind those of a page.
template <class Keys, class Values, int dim>
struct CodeRows {
  static constexpr int key_bytes = dim / Keys::in_byte, value_bytes = dim / Values::in_byte;
  static constexpr int scale_bytes = 2;
  static constexpr bool is_swizzled = false;
};

/// Tensor maps of a cache's keys and values as [dim / 64][positions of all blocks and KV
/// heads][64]; a box is a page. For swizzled rows.
struct PageMaps {
  CUtensorMap keys, values;
};

/// A warp's pages of `page` positions on their way to shared memory, every `warps`-th of its
/// block's: the keys of a page, then its values. `work` gives the first page in the row's context
/// (first_page), the begin of the row's block table (table), the number of pages, of which the
/// first skipped_pages() are left out, the positions in a page, and the KV head.
template <class Rows, int page, int warps, int stages, class Pass, class Work>
class PageQueue {
 public:
  /// Units of 16 bytes, in a page's keys and in both.
  static constexpr int key_units = page * (Rows::key_bytes + Rows::scale_bytes) / 16;
  static constexpr int units = key_units + page * (Rows::value_bytes + Rows::scale_bytes) / 16;

  /// `maps`: needed if rows are swizzled; `memory` then begins at a multiple of 1,024 bytes.
  __device__ PageQueue(const Pass& pass, const Work& work, uint4* memory, std::uint64_t* barriers,
                       const PageMaps* maps = nullptr)
      : pass_(pass),
        work_(work),
        maps_(maps),
        memory_(memory),
        barriers_(shared_address(barriers)),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x / 32),
        first_(turns_of(work.skipped_pages())),
        size_(max(turns_of(work.pages) - first_, 0)) {
    if (lane_ == 0) {
      for (int i = 0; i < stages; ++i) open_barrier(barriers_ + 8 * i);
      show_barriers();
    }
    __syncwarp();
  }
  __device__ int size() const { return size_; }
  /// The number of this warp's turns that are left out; they are not counted.
  __device__ int first() const { return first_; }
  __device__ int page_of(int turn) const { return warp_ + (first_ + turn) * warps; }

  /// Begins to copy the page of `turn`. Turns are requested in order, each once.
  __device__ void request(int turn) {
    if (turn >= size_) return;
    const int pages_per_block = pass_.pages_per_block;
    if (turn % 32 == 0 && turn + lane_ < size_) {
      const int in_row = work_.first_page() + page_of(turn + lane_);
      blocks_ = pass_.tables[work_.table() + in_row / pages_per_block];
    }
    const std::int64_t block = __shfl_sync(~0U, blocks_, turn % 32);
    if (lane_ != 0) return;
    const int in_block = (work_.first_page() + page_of(turn)) % pages_per_block;
    const int positions = work_.positions_of(page_of(turn));
    const std::uint32_t barrier = barriers_ + turn % stages * 8;
    if constexpr (Rows::is_swizzled) {
      const std::int64_t first_page = (block * pass_.kv_heads + work_.kv_head) * pages_per_block;
      const auto row = static_cast<int>((first_page + in_block) * page);
      expect_bytes(barrier, 16 * units);
      copy_box(shared_address(keys(turn)), &maps_->keys, 0, row, 0, 0, 0, barrier);
      copy_box(shared_address(values(turn)), &maps_->values, 0, row, 0, 0, 0, barrier);
      return;
    }
    const Source from{block * pass_.kv_heads + work_.kv_head, in_block, positions};
    if constexpr (scale_bytes > 0) {
      if (pages_per_block == 1 && positions == page) {
        // Values follow their keys.
        const auto* const both =
            reinterpret_cast<const unsigned char*>(pass_.keys) + from.head * pitch;
        expect_bytes(barrier, pitch);
        copy_bulk(shared_address(keys(turn)), both, pitch, barrier);
        return;
      }
    }
    expect_bytes(barrier, rows_bytes(Rows::key_bytes, positions) +
                              rows_bytes(Rows::value_bytes, positions) + 2 * scale_bytes);
    copy<Rows::key_bytes>(pass_.keys, from, keys(turn), barrier);
    copy<Rows::value_bytes>(pass_.values, from, values(turn), barrier);
  }
  /// Waits until the page of `turn` has arrived.
  __device__ void wait(int turn) const {
    wait_for_bytes(barriers_ + turn % stages * 8, turn / stages % 2);
  }
  __device__ uint4* keys(int turn) const { return memory_ + turn % stages * units; }
  __device__ uint4* values(int turn) const { return keys(turn) + key_units; }

 private:
  /// A page among those of all blocks and KV heads.
  struct Source {
    std::int64_t head;  ///< block * kv_heads + KV head
    int in_block, positions;
  };
  static constexpr int scale_bytes = page * Rows::scale_bytes;  // of keys or of values
  /// With scales: from a page of a KV head to that of the next (CodedPages).
  static constexpr int pitch = 16 * units;

  /// What is copied of the rows of `positions`. Of an odd number of short rows the last unit has a
  /// part of the next row, which is in the page.
  static __device__ constexpr int rows_bytes(int row_bytes, int positions) {
    static_assert(page % 16 == 0);
    return row_bytes % 16 == 0 ? positions * row_bytes : (positions * row_bytes + 15) / 16 * 16;
  }
  template <int row_bytes>
  __device__ void copy(const void* pages, const Source& from, uint4* to,
                       std::uint32_t barrier) const {
    constexpr int all_rows = page * row_bytes;
    const int pages_per_block = pass_.pages_per_block;
    constexpr int page_bytes = scale_bytes > 0 ? pitch : all_rows;
    const auto* const block =
        static_cast<const unsigned char*>(pages) + from.head * pages_per_block * page_bytes;
    const auto* const rows = block + from.in_block * all_rows;
    const int bytes = rows_bytes(row_bytes, from.positions);
    const std::uint32_t there = shared_address(to);
    if constexpr (scale_bytes == 0) {
      copy_bulk(there, rows, bytes, barrier);
    } else {
      const auto* const scales = block + std::int64_t{pages_per_block} * all_rows;
      copy_bulk(there, rows, bytes, barrier);
      copy_bulk(there + all_rows, scales + from.in_block * scale_bytes, scale_bytes, barrier);
    }
  }
  /// The number of this warp's turns among the first `pages` pages.
  __device__ int turns_of(int pages) const {
    return pages > warp_ ? (pages - warp_ + warps - 1) / warps : 0;
  }

  const Pass& pass_;
  const Work& work_;
  const PageMaps* maps_;
  uint4* memory_;
  std::uint32_t barriers_;
  int lane_, warp_, first_, size_;
  std::int32_t blocks_ = 0;  // for this lane's turn among 32
};

}  // namespace troupe::cuda
