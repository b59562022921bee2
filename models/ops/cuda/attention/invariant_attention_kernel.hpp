#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace troupe {

/// Positions per warp and step.
inline constexpr int invariant_page = 16;
/// Pages per part of a context: part p has positions [512 p, 512 p + 512).
inline constexpr int invariant_part_pages = 32;
/// Query heads of a block, at most: columns of one instruction. A KV head with more query heads has
/// several blocks.
inline constexpr int max_invariant_heads = 8;
/// Scores are multiplied by this, so that 2^score is e^score.
inline constexpr float log2_e = 1.4426950408889634F;

/// The work of all KV heads' blocks for up to columns / group adjacent rows of one sequence: parts
/// [first_part, first_part + parts) of their context. If rows' parts are spread over several items,
/// the block that ends last combines them.
struct InvariantItem {
  std::int32_t row;       ///< the first row
  std::int32_t rows;      ///< 0: no work
  std::int32_t position;  ///< of the first row
  std::int32_t table;     ///< begin of the sequence's block table
  std::int32_t first_part, parts;
  std::int32_t items;  ///< number of items for these rows
  std::int32_t slot;   ///< of the rows' part 0 in the part memory; the others follow
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
  const float* sinks;          ///< [kv_heads * group], or null
  float* sums;                 ///< [slots, row_blocks, columns, head_dim]
  float2* scales;              ///< [slots, row_blocks, columns]: maximum, total
  unsigned* finished;          ///< [slots, row_blocks]: finished items; 0 between passes
  int entries;
  int kv_heads;
  int row_blocks;       ///< blocks of an entry: kv_heads times the blocks of a KV head
  int group;            ///< query heads of a KV head
  int pages_per_block;  ///< pages of 16 positions in a block of the cache
  float scale;          ///< of q.k, times log2(e); with a cap, also times 2 / cap
  float soft_cap;       ///< times log2(e); 0: none
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
