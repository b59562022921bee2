#pragma once

#include <cstdint>
#include <span>

namespace troupe {

/// A block of the KV cache, and the one in host memory where its pages are kept.
struct SwappedBlock {
  std::int32_t block = 0;
  std::int32_t host_block = 0;
};

/// Host memory for blocks of a KV cache, whose sequences make room for others. Made by
/// Ops::make_swap; used by the thread of its Ops, which outlives it.
///
/// Copies only enqueue, as operations do, in their order, and run beside operations: they begin
/// when what was enqueued before the first of them since join() is done, and no operation enqueued
/// from then on writes to blocks that go out, or touches blocks that come in, until join(). The
/// caches must outlive it. An error is told as those of operations are.
class KvSwap {
 public:
  virtual ~KvSwap() = default;

  virtual void copy_out(std::span<const SwappedBlock> blocks) = 0;
  virtual void copy_in(std::span<const SwappedBlock> blocks) = 0;
  /// What is enqueued from now on comes after all copies so far.
  virtual void join() = 0;
};

}  // namespace troupe
