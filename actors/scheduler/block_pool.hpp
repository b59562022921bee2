#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// A page of KV cache: an index into every layer's pages on every rank.
using BlockId = std::int32_t;

/// Who holds which of a fixed number of equal pages. A block is free, or has one or more
/// references; the one that takes the last reference away frees it. Free blocks are handed out last
/// in, first out (a block that was just freed is the likeliest to be still in a CPU's cache); at
/// first in rising order. Knows numbers only, touches no memory of the cache. One thread at a time.
class BlockPool {
 public:
  explicit BlockPool(std::int32_t blocks);

  std::int32_t blocks() const { return static_cast<std::int32_t>(references_.size()); }
  std::int32_t free_blocks() const { return static_cast<std::int32_t>(free_.size()); }

  /// Appends `count` blocks with one reference each to `table`; false, and nothing taken, if fewer
  /// are free.
  bool allocate(std::int32_t count, std::vector<BlockId>& table);

  /// One more reference to a block that is not free. Errors: internal if it is free or not of this
  /// pool.
  Result<void> share(BlockId block);

  /// Takes one reference from each, the last first, so that an equal table allocated next comes in
  /// the same order. Errors: internal if one is free already or not of this pool; those behind it
  /// are released, the rest is not.
  Result<void> release(std::span<const BlockId> table);

  /// 0 for a free block. `block` must be of this pool.
  std::int32_t references(BlockId block) const;

 private:
  std::vector<std::int32_t> references_;  ///< [blocks]
  std::vector<BlockId> free_;             ///< the back is handed out first
};

}  // namespace troupe
