#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "actors/scheduler/block_pool.hpp"

namespace troupe {

/// What one sequence holds of the KV cache.
struct SequenceBlocks {
  /// [groups][blocks], in the order of positions; all of one length. -1: left the window.
  std::vector<std::vector<BlockId>> tables;
  std::vector<BlockContent> contents;  ///< of its full blocks, as far as they were needed; group 0
  std::int32_t published = 0;          ///< of its blocks, from the first
  std::size_t reported = 0;            ///< of its blocks, those that take_new has given
  std::vector<std::int32_t> dropped;   ///< [groups] leading blocks that left the window
};

/// The block tables of a replica's sequences over one pool of equal pages: a table per cache group
/// (layers that remember alike: the same window or none), grown as positions are planned, and a
/// prefix cache over full blocks. One thread at a time.
///
/// A block is published, and may be shared, as soon as the step that fills it is planned: workers
/// carry out plans in order, and in a pass each layer writes its keys and values before it reads
/// any, so whoever is planned later finds it filled. For the same reason a block that is given back
/// can be handed out at once, though a plan in flight still names it.
class KvTables {
 public:
  /// `windows` has an entry per group: tokens that a position sees, itself included; 0: all.
  KvTables(std::int32_t blocks, std::int32_t block_size, std::vector<std::int32_t> windows,
           bool prefix_caching);

  /// Gives `held`, which is empty, the longest prefix of `tokens` that all groups can find, at most
  /// `most` tokens; returns its length, a multiple of the block size (0 without a prefix cache).
  std::int32_t take_prefix(std::span<const std::int32_t> tokens, std::int32_t most,
                           SequenceBlocks& held);

  /// Makes room for positions below `end`; false, and nothing taken, if too few blocks are free.
  bool grow(std::int32_t end, SequenceBlocks& held);
  /// How many blocks grow() would take.
  std::int32_t missing(std::int32_t end, const SequenceBlocks& held) const;

  /// The entries of all tables that were added since the last call, group after group: what a plan
  /// tells the workers.
  std::vector<BlockId> take_new(SequenceBlocks& held) const;

  /// Publishes the full blocks of positions below `end`, which are planned and whose tokens are
  /// `tokens`.
  void publish(std::span<const std::int32_t> tokens, std::int32_t end, SequenceBlocks& held);

  /// Gives back what no position from `position` on sees any more.
  void drop_left(std::int32_t position, SequenceBlocks& held);

  /// Gives everything back; keeps what was computed of the contents, which are the tokens' alone.
  void release(SequenceBlocks& held);

  /// Gives all blocks back, but remembers in which places they were: -1 everywhere, until refill().
  void vacate(SequenceBlocks& held);
  /// After vacate(): as many blocks in the same places, what is in them still to come; returns all
  /// tables, group after group, which a plan tells the workers. The blocks must be free.
  std::vector<BlockId> refill(SequenceBlocks& held);

  /// `other`, an entry for each block that `held` holds or held before vacate(), as long as all
  /// tables together: -1 for what left the window.
  std::vector<std::int32_t> in_places_of(std::span<const std::int32_t> other,
                                         const SequenceBlocks& held) const;

  /// How many blocks `held` holds, or held before vacate().
  std::int32_t held(const SequenceBlocks& held) const;
  /// Of these, which nobody else holds: so many would become free.
  std::int32_t held_alone(const SequenceBlocks& held) const;
  /// By how many blocks `held` grows on its way to `end` if at most `chunk` positions are planned
  /// at once: missing(), less what leaves the windows meanwhile.
  std::int32_t growth(std::int32_t end, std::int32_t chunk, const SequenceBlocks& held) const;

  /// The most that a sequence of `positions` holds at one time if at most `chunk` of them are
  /// planned at once.
  std::int32_t max_held(std::int64_t positions, std::int32_t chunk) const;

  std::size_t groups() const { return windows_.size(); }
  std::int32_t block_size() const { return block_size_; }
  const BlockPool& pool() const { return pool_; }

 private:
  void compute_contents(std::span<const std::int32_t> tokens, std::size_t blocks,
                        SequenceBlocks& held) const;
  std::optional<BlockId> find(std::size_t group, const BlockContent& content) const;
  bool window_found(std::size_t group, std::size_t blocks, const SequenceBlocks& held) const;
  /// The first block that position `position` sees.
  std::int32_t first_seen(std::size_t group, std::int32_t position) const;

  BlockPool pool_;
  std::int32_t block_size_;
  std::vector<std::int32_t> windows_;
  bool prefix_caching_;
};

}  // namespace troupe
