#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "actors/scheduler/block_pool.hpp"

namespace troupe {

/// The KV cache blocks of one sequence.
struct SequenceBlocks {
  /// [groups][blocks], in the order of positions; all of one length. -1: left the window.
  std::vector<std::vector<BlockId>> tables;
  std::vector<BlockContent> contents;  ///< of its full blocks, as far as needed so far; group 0
  std::int32_t published = 0;          ///< leading blocks that are published
  std::size_t reported = 0;            ///< leading blocks that take_new has returned
  std::vector<std::int32_t> dropped;   ///< [groups] leading blocks that left the window
};

/// The block tables of a replica's sequences over one pool of equal pages: a table per cache group
/// (layers with the same KV layout: the same window or none), grown as positions are planned, and a
/// prefix cache over full blocks. One thread at a time.
///
/// A block is published, and may be shared, as soon as the step that fills it is planned: workers
/// carry out plans in order, and in a pass each layer writes its keys and values before it reads
/// any, so every later plan finds it filled. For the same reason a freed block can be reallocated
/// at once, although a plan in flight still names it.
class KvTables {
 public:
  /// `windows` has an entry per group: the tokens that a position sees, itself included; 0: all.
  KvTables(std::int32_t blocks, std::int32_t block_size, std::vector<std::int32_t> windows,
           bool prefix_caching);

  /// Gives `held`, which is empty, the longest prefix of `tokens` that all groups can find, at most
  /// `most` tokens. Returns its length, a multiple of the block size (0 without a prefix cache).
  std::int32_t take_prefix(std::span<const std::int32_t> tokens, std::int32_t most,
                           SequenceBlocks& held);

  /// Allocates blocks for positions below `end`. Returns false and takes none if too few are free.
  bool grow(std::int32_t end, SequenceBlocks& held);
  /// Returns the number of blocks that grow() would take.
  std::int32_t missing(std::int32_t end, const SequenceBlocks& held) const;

  /// Returns the entries that were added to all tables since the last call, group after group, to
  /// be sent to the workers in a plan.
  std::vector<BlockId> take_new(SequenceBlocks& held) const;

  /// Publishes the full blocks of positions below `end`, which are planned and hold `tokens`.
  void publish(std::span<const std::int32_t> tokens, std::int32_t end, SequenceBlocks& held);

  /// Releases the blocks that no position from `position` on sees.
  void drop_left(std::int32_t position, SequenceBlocks& held);

  /// Releases the blocks behind those that the first `entries` positions need.
  void truncate(std::int32_t entries, SequenceBlocks& held);

  /// Releases all blocks; keeps the hashes of their contents, which depend on the tokens alone.
  void release(SequenceBlocks& held);

  /// Releases all blocks but keeps the layout of the tables: -1 everywhere, until refill().
  void vacate(SequenceBlocks& held);
  /// After vacate(): allocates as many blocks in the same layout, whose content will be copied in.
  /// Returns all tables, group after group, for the plan. The blocks must be free.
  std::vector<BlockId> refill(SequenceBlocks& held);

  /// Lays out `other`, which has one entry for each block that `held` holds or held before
  /// vacate(), like all tables together: -1 for blocks that left the window.
  std::vector<std::int32_t> in_places_of(std::span<const std::int32_t> other,
                                         const SequenceBlocks& held) const;

  /// Returns the number of blocks that `held` holds, or held before vacate().
  std::int32_t held(const SequenceBlocks& held) const;
  /// Returns the number of blocks that only `held` references, and that its release would free.
  std::int32_t held_alone(const SequenceBlocks& held) const;
  /// Returns by how many blocks `held` grows until `end` if at most `chunk` positions are planned
  /// at once: missing(), less the blocks that leave the windows meanwhile.
  std::int32_t growth(std::int32_t end, std::int32_t chunk, const SequenceBlocks& held) const;

  /// The most blocks that a sequence of `positions` holds at one time if at most `chunk` of them
  /// are planned at once.
  std::int32_t max_held(std::int64_t positions, std::int32_t chunk) const;

  std::size_t groups() const { return windows_.size(); }
  std::int32_t block_size() const { return block_size_; }
  const BlockPool& pool() const { return pool_; }

 private:
  void compute_contents(std::span<const std::int32_t> tokens, std::size_t blocks,
                        SequenceBlocks& held) const;
  std::optional<BlockId> find(std::size_t group, const BlockContent& content) const;
  bool window_found(std::size_t group, std::size_t blocks, const SequenceBlocks& held) const;
  /// Returns the first block that position `position` sees.
  std::int32_t first_seen(std::size_t group, std::int32_t position) const;

  BlockPool pool_;
  std::int32_t block_size_;
  std::vector<std::int32_t> windows_;
  bool prefix_caching_;
};

}  // namespace troupe
