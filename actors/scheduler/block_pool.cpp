#include "actors/scheduler/block_pool.hpp"

#include <cassert>
#include <numeric>

namespace troupe {

BlockPool::BlockPool(std::int32_t blocks)
    : blocks_(static_cast<std::size_t>(blocks)), free_(static_cast<std::size_t>(blocks)) {
  std::iota(free_.rbegin(), free_.rend(), 0);
}

bool BlockPool::allocate(std::int32_t count, std::vector<BlockId>& table) {
  assert(count >= 0);
  if (count > free_blocks()) return false;
  for (std::int32_t i = 0; i < count; ++i) {
    BlockId block = none;
    if (!free_.empty()) {
      block = free_.back();
      free_.pop_back();
    } else {
      block = oldest_idle_;
      remove_idle(block);
      found_at_.erase(at(block).content);
      at(block).findable = false;
    }
    at(block).references = 1;
    table.push_back(block);
  }
  return true;
}

void BlockPool::publish(BlockId block, const BlockContent& content) {
  assert(references(block) > 0);
  if (at(block).findable || !found_at_.try_emplace(content, block).second) return;
  at(block).findable = true;
  at(block).content = content;
}

std::optional<BlockId> BlockPool::find(const BlockContent& content) const {
  const auto found = found_at_.find(content);
  return found == found_at_.end() ? std::nullopt : std::optional(found->second);
}

Result<void> BlockPool::share(BlockId block) {
  if (!knows(block) || (references(block) == 0 && !at(block).findable)) {
    return fail(ErrorCode::internal, "block {} is shared but nobody holds it", block);
  }
  if (at(block).references++ == 0) remove_idle(block);
  return {};
}

Result<void> BlockPool::release(std::span<const BlockId> table) {
  for (std::size_t i = table.size(); i-- > 0;) {
    const BlockId block = table[i];
    if (block < 0) continue;
    if (!knows(block) || references(block) == 0) {
      return fail(ErrorCode::internal, "block {} is released but nobody holds it", block);
    }
    if (--at(block).references > 0) continue;
    if (at(block).findable) {
      append_idle(block);
    } else {
      free_.push_back(block);
    }
  }
  return {};
}

std::int32_t BlockPool::references(BlockId block) const {
  assert(knows(block));
  return blocks_[static_cast<std::size_t>(block)].references;
}

void BlockPool::append_idle(BlockId block) {
  at(block).older = newest_idle_;
  at(block).newer = none;
  if (newest_idle_ != none) at(newest_idle_).newer = block;
  newest_idle_ = block;
  if (oldest_idle_ == none) oldest_idle_ = block;
  ++idle_;
}

void BlockPool::remove_idle(BlockId block) {
  const Block& removed = at(block);
  if (removed.older != none) at(removed.older).newer = removed.newer;
  if (removed.newer != none) at(removed.newer).older = removed.older;
  if (oldest_idle_ == block) oldest_idle_ = removed.newer;
  if (newest_idle_ == block) newest_idle_ = removed.older;
  --idle_;
}

}  // namespace troupe
