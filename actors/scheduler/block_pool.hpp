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

/// What stands in a full block: the tokens in it and all before them, as a chained hash, for one
/// cache group.
struct BlockContent {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  std::int32_t group = 0;

  bool operator==(const BlockContent&) const = default;
};

/// Who holds which of a fixed number of equal pages, and what can be found again in them.
///
/// A block is free, or has one or more references; the one that takes the last reference away frees
/// it. A block whose content was published stays findable when it is free: it is handed out last,
/// the least recently released first, and is forgotten then. Other free blocks are handed out last
/// in, first out (a block that was just freed is the likeliest to be still in a CPU's cache); at
/// first in rising order. Knows numbers only, touches no memory of the cache. One thread at a time.
class BlockPool {
 public:
  explicit BlockPool(std::int32_t blocks);

  std::int32_t blocks() const { return static_cast<std::int32_t>(blocks_.size()); }
  /// The findable ones among them too.
  std::int32_t free_blocks() const { return static_cast<std::int32_t>(free_.size()) + idle_; }
  /// Those whose content can be found, held or free.
  std::size_t findable_blocks() const { return found_at_.size(); }

  /// Appends `count` blocks with one reference each to `table`; false, and nothing taken, if fewer
  /// are free.
  bool allocate(std::int32_t count, std::vector<BlockId>& table);

  /// Makes `block`, which somebody holds, findable by what is in it. Nothing happens if another
  /// block has the same content already, or this one is findable.
  void publish(BlockId block, const BlockContent& content);

  /// The block that has this content, if there is one. Not taken.
  std::optional<BlockId> find(const BlockContent& content) const;

  /// One more reference to a block that is held or findable. Errors: internal for another.
  Result<void> share(BlockId block);

  /// Takes one reference from each, the last first, so that an equal table allocated next comes in
  /// the same order and the end of a sequence is forgotten before its beginning. Entries below 0
  /// are skipped. Errors: internal if one is free already or not of this pool; those behind it are
  /// released, the rest is not.
  Result<void> release(std::span<const BlockId> table);

  /// 0 for a free block. `block` must be of this pool.
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
  std::vector<BlockId> free_;   ///< not findable; the back is handed out first
  BlockId oldest_idle_ = none;  ///< findable and free: a list from oldest to newest
  BlockId newest_idle_ = none;
  std::int32_t idle_ = 0;
  std::unordered_map<BlockContent, BlockId, HashOfContent> found_at_;
};

}  // namespace troupe
