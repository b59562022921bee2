#pragma once

#include <cstdint>

#include <cuda_bf16.h>

namespace troupe {

/// Positions that a warp takes at once.
inline constexpr int attention_page = 16;
/// Scores are multiplied by this, so that 2^score is e^score.
inline constexpr float log2_e = 1.4426950408889634F;

/// Attention over the paged cache by blocks that share out the items of a plan: addresses on the
/// device.
template <class Item>
struct PagedPass {
  using Element = __nv_bfloat16;

  const Element* q;            ///< [rows, kv_heads * group, head_dim]
  const Element* keys;         ///< [blocks, kv_heads, 16 * pages_per_block, head_dim]
  const Element* values;       ///< as keys
  Element* out;                ///< as q
  const Item* items;           ///< [entries]
  const std::int32_t* tables;  ///< block tables
  const float* sinks;          ///< [kv_heads * group], or null
  float* sums;                 ///< [slots, row_blocks, columns, head_dim]
  float2* scales;              ///< [slots, row_blocks, columns]: maximum, total
  unsigned* finished;          ///< [slots, row_blocks]: items that are done; 0 between passes
  /// As sums and scales: parts of rows in prefixes that they share with others.
  float* prefix_sums;
  float2* prefix_scales;
  int entries;
  int kv_heads;
  int row_blocks;       ///< blocks of an entry: kv_heads times the blocks of a KV head
  int group;            ///< query heads of a KV head
  int pages_per_block;  ///< pages of 16 positions in a block of the cache
  int window;           ///< positions that a row sees, its own and those before; 0: all
  float scale;          ///< of q.k, times log2(e); with a cap, also times 2 / cap
  float soft_cap;       ///< times log2(e); 0: none
};

}  // namespace troupe
