// Keys and values of attention, read by bulk copies.
#pragma once

#include <cstdint>

#include "models/ops/cuda/common/ptx_sm90.cuh"

namespace troupe::cuda {

/// How a cache of bf16, or of codes of 8 bits, holds the keys or the values of a position.
template <int dim>
struct Bf16Rows {
  static constexpr int row_bytes = 2 * dim, scale_bytes = 0;
};
/// Scales lie behind all rows of a block (CodedPages); in shared memory behind those of a page.
template <int dim>
struct CodeRows {
  static constexpr int row_bytes = dim, scale_bytes = 2;
};

/// A warp's pages of `page` positions on their way to shared memory, every `warps`-th of its
/// block's: the keys of a page, then its values. `work` gives the first page in the row's context
/// (first_page), the begin of the row's block table (table), the number of pages, of which the
/// first skipped_pages() are left out, the positions in a page, and the KV head.
template <class Rows, int page, int warps, int stages, class Pass, class Work>
class PageQueue {
 public:
  static constexpr int position_bytes = Rows::row_bytes + Rows::scale_bytes;
  static constexpr int units = page * position_bytes / 16;  // of 16 bytes, in keys or in values

  __device__ PageQueue(const Pass& pass, const Work& work, uint4* memory, std::uint64_t* barriers)
      : pass_(pass),
        work_(work),
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
    const std::int64_t begin =
        (block * pass_.kv_heads + work_.kv_head) * pages_per_block * page * position_bytes;
    const std::int64_t at = begin + in_block * page * Rows::row_bytes;
    const std::uint32_t barrier = barriers_ + turn % stages * 8;
    const auto* const all_keys = reinterpret_cast<const unsigned char*>(pass_.keys);
    const auto* const all_values = reinterpret_cast<const unsigned char*>(pass_.values);
    const auto copy_both = [&](std::uint32_t to, std::int64_t from, std::uint32_t bytes) {
      copy_bulk(shared_address(keys(turn)) + to, all_keys + from, bytes, barrier);
      copy_bulk(shared_address(values(turn)) + to, all_values + from, bytes, barrier);
    };
    const std::uint32_t bytes = positions * Rows::row_bytes;
    constexpr std::uint32_t scale_bytes = page * Rows::scale_bytes;
    expect_bytes(barrier, 2 * (bytes + scale_bytes));
    if constexpr (scale_bytes == 0) {
      copy_both(0, at, bytes);
    } else if (pages_per_block == 1 && positions == page) {
      copy_both(0, at, bytes + scale_bytes);
    } else {
      constexpr std::uint32_t all_rows = page * Rows::row_bytes;
      copy_both(0, at, bytes);
      copy_both(all_rows, begin + pages_per_block * std::int64_t{all_rows} + in_block * scale_bytes,
                scale_bytes);
    }
  }
  /// Waits until the page of `turn` has arrived.
  __device__ void wait(int turn) const {
    wait_for_bytes(barriers_ + turn % stages * 8, turn / stages % 2);
  }
  __device__ uint4* keys(int turn) const { return memory_ + turn % stages * 2 * units; }
  __device__ uint4* values(int turn) const { return keys(turn) + units; }

 private:
  /// The number of this warp's turns among the first `pages` pages.
  __device__ int turns_of(int pages) const {
    return pages > warp_ ? (pages - warp_ + warps - 1) / warps : 0;
  }

  const Pass& pass_;
  const Work& work_;
  uint4* memory_;
  std::uint32_t barriers_;
  int lane_, warp_, first_, size_;
  std::int32_t blocks_ = 0;  // for this lane's turn among 32
};

}  // namespace troupe::cuda
