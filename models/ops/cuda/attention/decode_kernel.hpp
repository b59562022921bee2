#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "models/ops/cuda/attention/paged_pass.hpp"

namespace troupe {

/// Query heads of one instruction, and of a block at most. A KV head with more query heads has
/// several blocks.
constexpr int decode_tile_heads = 8, max_decode_columns = 16;
/// A row has at most this many parts.
constexpr int max_decode_parts = 256;
/// Query heads of a block, for a KV head with `group` of them. Registers hold two tiles of heads of
/// up to 128 elements.
constexpr int decode_columns(int head_dim, std::int64_t group) {
  return group > decode_tile_heads && head_dim <= 128 ? max_decode_columns : decode_tile_heads;
}
/// Latent attention: query heads, which are rows of one instruction, and elements of a key and of
/// the part of it that is the value.
constexpr int max_latent_heads = 16;
constexpr int latent_key_dim = 576, latent_value_dim = 512;

/// What the blocks of all KV heads do for one row: positions [16 * first_page, + positions) of its
/// context, without the first `hidden` ones, which lie before the row's window. The block that ends
/// last puts the parts of a row together, and adds those of a prefix that it shares with others,
/// which an earlier kernel has left (prefix_kernel.hpp).
struct DecodePart {
  std::int32_t row;
  std::int32_t table;  ///< where the row's block table begins
  std::int32_t first_page;
  std::int32_t positions;  ///< 0: nothing to do
  std::int16_t index, parts;
  std::int16_t hidden;        ///< below 16
  std::int16_t prefix_parts;  ///< 0: no shared prefix
  std::int32_t slot;          ///< of the row's first part in the memory of parts; the others follow
  std::int32_t prefix_slot;   ///< the same of the prefix's, in theirs
};
static_assert(sizeof(DecodePart) == 32);

/// Attention of one query row a sequence.
using DecodePass = PagedPass<DecodePart>;

/// The best number of blocks on a multiprocessor at once, for `items` (rows times blocks of a row).
/// Many short items need many blocks, few long ones many warps of one block.
int decode_blocks(std::int64_t items);
constexpr int max_decode_blocks = 3;

/// How many blocks share a row of latent attention, so that `rows` rows take the least time: a
/// power of two up to 8.
int latent_blocks(std::int64_t rows);

/// Enqueues the kernel for latent attention: keys are [pages, 16, 576], values their first 512
/// elements, kv_heads is 1; an entry is a whole row, which `blocks` blocks share.
cudaError_t attend_latent_rows(const DecodePass& pass, std::int64_t pages, int blocks,
                               cudaStream_t stream);

/// Enqueues the kernel; head_dim is 64, 80, 96, 112, 128, 192 or 256, `blocks` are decode_blocks().
cudaError_t launch_decode_attention(const DecodePass& pass, int blocks, int head_dim,
                                    cudaStream_t stream);

}  // namespace troupe
