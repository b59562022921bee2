#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace troupe {

/// Positions that a warp takes at once.
inline constexpr int invariant_page = 16;
/// Pages of a part, by which contexts are cut: part p has positions [512 p, 512 p + 512).
inline constexpr int invariant_part_pages = 32;
/// Query heads of a KV head: columns of one instruction.
inline constexpr int max_invariant_group = 8;

/// What the blocks of all KV heads do for up to columns / group neighbouring rows of one sequence:
/// parts [first_part, first_part + parts) of their context. Of rows whose parts are spread over
/// several items the block that ends last puts them together.
struct InvariantItem {
  std::int32_t row;       ///< the first
  std::int32_t rows;      ///< 0: nothing to do
  std::int32_t position;  ///< of the first row
  std::int32_t table;     ///< where the sequence's block table begins
  std::int32_t first_part, parts;
  std::int32_t items;  ///< of these rows
  std::int32_t slot;   ///< of the rows' part 0 in the memory of parts; the others follow
};
static_assert(sizeof(InvariantItem) == 32);

/// Attention over the paged cache: addresses on the device.
struct InvariantPass {
  using Element = __nv_bfloat16;

  const Element* q;            ///< [rows, kv_heads * group, head_dim]
  const Element* keys;         ///< [blocks, kv_heads, 16 * pages_per_block, head_dim]
  const Element* values;       ///< as keys
  Element* out;                ///< as q
  const InvariantItem* items;  ///< [entries]
  const std::int32_t* tables;  ///< block tables
  float* sums;                 ///< [slots, kv_heads, columns, head_dim]
  float2* scales;              ///< [slots, kv_heads, columns]: maximum, total
  unsigned* finished;          ///< [slots, kv_heads]: items that are done; 0 between passes
  int entries;
  int kv_heads;
  int group;            ///< query heads of a KV head, at most max_invariant_group
  int pages_per_block;  ///< a block of the cache is so many pages of 16 positions
  float scale;          ///< of q.k, times log2(e)
};

/// Columns, each a query head of a row, of an item's blocks.
enum class InvariantColumns : std::uint8_t { eight = 8, sixteen = 16 };

/// Blocks of either kind that a multiprocessor has at once.
inline constexpr int invariant_blocks = 2;

/// Enqueues the kernel; head_dim is 64 or 128. A row's output is a function of its query, position
/// and context, in bits, whatever its item has besides and however its parts are spread.
cudaError_t launch_invariant_attention(const InvariantPass& pass, InvariantColumns columns,
                                       int head_dim, cudaStream_t stream);

}  // namespace troupe
