#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "models/ops/cuda/attention/paged_pass.hpp"
#include "models/ops/gpu_attention.hpp"

namespace troupe {

/// Columns, each a query head of a row, that a block takes at most: those that share a KV head.
inline constexpr int prefix_columns = cascade_columns;
/// Pages of an item, at most.
inline constexpr int max_prefix_pages = 1024;
/// Positions that a block takes at once: items are multiples of it, except a prefix's last one.
constexpr int prefix_tile(int head_dim) { return head_dim <= 128 ? 64 : 32; }
/// Resident blocks per multiprocessor.
constexpr int prefix_blocks(int head_dim) { return head_dim <= 128 ? 3 : 2; }

/// A row of a prefix: where its parts are left.
struct PrefixRow {
  std::int32_t row;
  std::int32_t slot;  ///< of the prefix's first part; the others follow
};

/// What the blocks of all KV heads do for rows that share a prefix: a part of it, with no row's own
/// position in it.
struct PrefixItem {
  std::int32_t table;  ///< where the block table of one of the rows begins
  std::int32_t first_page, pages;
  std::int32_t first_row, rows;  ///< of the plan's PrefixRows; no rows: nothing to do
  std::int32_t part;
};

/// Attention of rows to prefixes: the pass's entries are PrefixItems, its row_blocks the KV heads,
/// its prefix_sums and prefix_scales what it writes.
struct PrefixPass {
  PagedPass<PrefixItem> pass;
  const PrefixRow* rows;
  int slot_blocks;   ///< blocks of a row in the memory of parts
  int slot_columns;  ///< columns of such a block
};

/// Enqueues the kernel; head_dim is 64, 80, 96, 112, 128, 192 or 256, a KV head has at most
/// prefix_columns query heads.
cudaError_t launch_prefix_attention(const PrefixPass& pass, int head_dim, cudaStream_t stream);

}  // namespace troupe
