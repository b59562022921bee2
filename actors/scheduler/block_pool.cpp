#include "actors/scheduler/block_pool.hpp"

#include <cassert>
#include <numeric>

namespace troupe {

BlockPool::BlockPool(std::int32_t blocks)
    : references_(static_cast<std::size_t>(blocks), 0), free_(static_cast<std::size_t>(blocks)) {
  std::iota(free_.rbegin(), free_.rend(), 0);
}

bool BlockPool::allocate(std::int32_t count, std::vector<BlockId>& table) {
  assert(count >= 0);
  if (count > free_blocks()) return false;
  for (std::int32_t i = 0; i < count; ++i) {
    const BlockId block = free_.back();
    free_.pop_back();
    references_[static_cast<std::size_t>(block)] = 1;
    table.push_back(block);
  }
  return true;
}

Result<void> BlockPool::share(BlockId block) {
  if (block < 0 || block >= blocks() || references(block) == 0) {
    return fail(ErrorCode::internal, "block {} is shared but nobody holds it", block);
  }
  ++references_[static_cast<std::size_t>(block)];
  return {};
}

Result<void> BlockPool::release(std::span<const BlockId> table) {
  for (std::size_t i = table.size(); i-- > 0;) {
    const BlockId block = table[i];
    if (block < 0 || block >= blocks() || references(block) == 0) {
      return fail(ErrorCode::internal, "block {} is released but nobody holds it", block);
    }
    if (--references_[static_cast<std::size_t>(block)] == 0) free_.push_back(block);
  }
  return {};
}

std::int32_t BlockPool::references(BlockId block) const {
  assert(block >= 0 && block < blocks());
  return references_[static_cast<std::size_t>(block)];
}

}  // namespace troupe
