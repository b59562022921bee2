#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// A page of KV cache: an index into every layer's pages on every rank.
using BlockId = std::int32_t;

/// Identifies the content of a full block: a chained hash of its tokens and all before them, for
/// one cache group.
struct BlockContent {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  std::int32_t group = 0;

  bool operator==(const BlockContent&) const = default;
};

/// The reference counts of a fixed number of equal pages, and an index of their contents.
///
/// A block is free or has one or more references; releasing the last reference frees it. A block
/// whose content was published stays findable while it is free: it is allocated last, the least
/// recently released first, and then forgotten. Other free blocks are allocated last in, first out
/// (a block that was just freed is the likeliest to be in a CPU's cache); at first in rising order.
/// Knows block numbers only and touches no cache memory. One thread at a time.
class BlockPool {
 public:
  explicit BlockPool(std::int32_t blocks);

  std::int32_t blocks() const { return static_cast<std::int32_t>(blocks_.size()); }
  /// Free blocks, including findable ones.
  std::int32_t free_blocks() const { return static_cast<std::int32_t>(free_.size()) + idle_; }
  /// Blocks whose content can be found, held or free.
  std::size_t findable_blocks() const { return found_at_.size(); }

  /// Appends `count` blocks with one reference each to `table`. Returns false and takes none if
  /// fewer are free.
  bool allocate(std::int32_t count, std::vector<BlockId>& table);

  /// Makes `block`, which must be held, findable by its content. Does nothing if another block has
  /// the same content already, or this one is findable.
  void publish(BlockId block, const BlockContent& content);

  /// Returns the block with this content, if there is one, without a reference.
  std::optional<BlockId> find(const BlockContent& content) const;

  /// Adds a reference to a block that is held or findable. Errors: internal for another.
  Result<void> share(BlockId block);

  /// Takes one reference from each block, the last first, so that an equal table allocated next
  /// comes in the same order and the end of a sequence is forgotten before its beginning. Entries
  /// below 0 are skipped. Errors: internal if one is free already or not of this pool; the blocks
  /// after it in the table are released, the rest is not.
  Result<void> release(std::span<const BlockId> table);

  /// Returns the reference count, 0 for a free block. `block` must be of this pool.
  std::int32_t references(BlockId block) const;

 private:
  static constexpr BlockId none = -1;

  struct Block {
    std::int32_t references = 0;
    bool findable = false;
    BlockContent content;
    BlockId older = none;  ///< neighbours in the list of idle blocks
    BlockId newer = none;
  };
  struct HashOfContent {
    std::size_t operator()(const BlockContent& content) const {
      return static_cast<std::size_t>(content.low) + static_cast<std::size_t>(content.group);
    }
  };

  Block& at(BlockId block) { return blocks_[static_cast<std::size_t>(block)]; }
  bool knows(BlockId block) const { return block >= 0 && block < blocks(); }
  void append_idle(BlockId block);
  void remove_idle(BlockId block);

  std::vector<Block> blocks_;
  std::vector<BlockId> free_;   ///< free and not findable; the back is allocated first
  BlockId oldest_idle_ = none;  ///< free and findable: a list from oldest to newest
  BlockId newest_idle_ = none;
  std::int32_t idle_ = 0;
  std::unordered_map<BlockContent, BlockId, HashOfContent> found_at_;
};

}  // namespace troupe
