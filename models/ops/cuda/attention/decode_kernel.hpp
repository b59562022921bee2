#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace troupe {

/// Positions that a warp takes at once.
constexpr int decode_page = 16;
/// Query heads of a KV head: columns of one instruction.
constexpr int max_decode_group = 8;
/// Latent attention: query heads, which are rows of one instruction, and elements of a key and of
/// the part of it that is the value.
constexpr int max_latent_heads = 16;
constexpr int latent_key_dim = 576, latent_value_dim = 512;

/// What the blocks of all KV heads do for one row: positions [16 * first_page, + positions) of its
/// context, without the first `hidden` ones, which lie before the row's window. The block that ends
/// last puts the parts of a row together.
struct DecodePart {
  std::int32_t row;
  std::int32_t table;  ///< where the row's block table begins
  std::int32_t first_page;
  std::int32_t positions;  ///< 0: nothing to do
  std::int32_t index, parts;
  std::int32_t slot;    ///< of the row's first part in the memory of parts; the others follow
  std::int32_t hidden;  ///< below 16
};
static_assert(sizeof(DecodePart) == 32);

/// Attention of one query row a sequence: addresses on the device.
struct DecodePass {
  using Element = __nv_bfloat16;

  const Element* q;            ///< [rows, kv_heads * group, head_dim]
  const Element* keys;         ///< [blocks, kv_heads, 16 * pages_per_block, head_dim]
  const Element* values;       ///< as keys
  Element* out;                ///< as q
  const DecodePart* parts;     ///< [entries]
  const std::int32_t* tables;  ///< block tables
  float* sums;                 ///< [slots, kv_heads, max_decode_group, head_dim]
  float2* scales;              ///< [slots, kv_heads, max_decode_group]: maximum, total
  unsigned* finished;          ///< [slots, kv_heads]: parts that are done; 0 between passes
  int entries;
  int kv_heads;
  int group;            ///< query heads of a KV head, at most max_decode_group
  int pages_per_block;  ///< a block of the cache is so many pages of 16 positions
  float scale;          ///< of q.k, times log2(e)
};

/// How a multiprocessor is shared: so many blocks of so many warps, of which each has `stages`
/// pages under way.
struct DecodeLayout {
  int blocks = 1;
  int warps = 8;
  int stages = 3;

  /// The fastest for `items` rows times KV heads on so many multiprocessors: many short items want
  /// many blocks, few long ones many warps of one block.
  static DecodeLayout fastest(std::int64_t items, int multiprocessors);
};

/// How many blocks share a row of latent attention, so that `rows` rows take the least time on so
/// many multiprocessors: a power of two up to 8.
int latent_blocks(std::int64_t rows, int multiprocessors);

/// Enqueues the kernel for latent attention: keys are [pages, 16, 576], values their first 512
/// elements, kv_heads is 1; an entry is a whole row, which `blocks` blocks share.
cudaError_t attend_latent_rows(const DecodePass& pass, std::int64_t pages, int blocks,
                               cudaStream_t stream);

/// Enqueues the kernel; head_dim is 64 or 128.
cudaError_t launch_decode_attention(const DecodePass& pass, const DecodeLayout& layout,
                                    int head_dim, cudaStream_t stream);

}  // namespace troupe
