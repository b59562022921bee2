#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "models/ops/cuda/attention/paged_pass.hpp"

namespace troupe {

/// Pages per part of a context: part p has positions [512 p, 512 p + 512).
inline constexpr int invariant_part_pages = 32;
/// Query heads of a block, at most: columns of one instruction. A KV head with more query heads has
/// several blocks.
inline constexpr int max_invariant_heads = 8;

/// The work of all KV heads' blocks for up to columns / group rows: parts [first_part, first_part +
/// parts) of their context. Rows are adjacent ones of one sequence, or those of several sequences
/// that share these parts. If rows' parts are spread over several items, the block that ends last
/// combines them.
struct InvariantItem {
  std::int32_t row;       ///< the first row; of several sequences: its place in InvariantPass::rows
  std::int32_t rows;      ///< 0: no work
  std::int32_t position;  ///< of the first row; of several sequences: the last of the parts
  std::int32_t table;     ///< begin of the sequence's block table
  std::int32_t first_part, parts;
  std::int32_t items;  ///< number of items for these rows; 0: rows of several sequences
  std::int32_t slot;   ///< of the rows' part 0 in the part memory; the others follow. Negative if
                       ///< they see no part 0
};
static_assert(sizeof(InvariantItem) == 32);

/// A row that shares parts with other sequences' rows; the members are as in its own items.
struct InvariantRow {
  std::int32_t row, position, slot, items;
};

/// Attention of the rows of an item.
struct InvariantPass : PagedPass<InvariantItem> {
  const InvariantRow* rows;
  int slot_columns;  ///< columns of a slot: those of the kernel, or the query heads of a row
};

/// Columns, each a query head of a row, of an item's blocks.
enum class InvariantColumns : std::uint8_t { eight = 8, sixteen = 16 };

/// Resident blocks of either kind per multiprocessor.
inline constexpr int invariant_blocks = 2;

/// Enqueues the kernel; head_dim is 64, 80, 96, 112, 128, 192 or 256. A row's output is a function
/// of its query, position and context, in bits, whatever else its item has and however its parts
/// are spread.
cudaError_t launch_invariant_attention(const InvariantPass& pass, InvariantColumns columns,
                                       int head_dim, cudaStream_t stream);

}  // namespace troupe
