#pragma once

#include <cstdint>
#include <span>

namespace troupe {

/// A block of the KV cache, and the host memory block for its pages.
struct SwappedBlock {
  std::int32_t block = 0;
  std::int32_t host_block = 0;
};

/// Host memory for blocks of a KV cache, whose sequences make room for others. Made by
/// AttentionOps::make_swap; used by the thread of its Ops, which outlives it.
///
/// Copies only enqueue, in order, like operations, and overlap with operations: they begin when the
/// work enqueued before the first of them since join() is done, and until the next join() no
/// operation enqueued later may write to blocks that go out, or touch blocks that come in. The
/// caches must outlive it. Errors are reported like those of operations.
class KvSwap {
 public:
  virtual ~KvSwap() = default;

  virtual void copy_out(std::span<const SwappedBlock> blocks) = 0;
  virtual void copy_in(std::span<const SwappedBlock> blocks) = 0;
  /// Makes later work wait for all copies so far.
  virtual void join() = 0;
};

}  // namespace troupe
