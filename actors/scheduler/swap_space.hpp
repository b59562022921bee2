#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <span>
#include <vector>

#include "actors/step/step_plan.hpp"

namespace troupe {

/// Where one sequence's KV is in host memory.
struct SwappedSequence {
  SequenceId id = 0;
  std::vector<std::int32_t> host_blocks;  ///< one for each block that it held
};

/// Tracks which sequences' KV is in host memory, and in which blocks. A sequence goes out with
/// put(), is inside from the next tell() on, and comes back with take(). The lowest blocks are used
/// first, so that memory that was never needed is never touched. One thread at a time.
class SwapSpace {
 public:
  explicit SwapSpace(std::int32_t blocks) : blocks_(blocks) {}

  std::int32_t blocks() const { return blocks_; }
  std::int32_t free_blocks() const {
    return blocks_ - unused_ + static_cast<std::int32_t>(returned_.size());
  }

  /// Gives `id`, which is not here, `count` blocks. Returns false and takes none if fewer are free.
  bool put(SequenceId id, std::int32_t count);

  /// Returns the sequences that went out, for the next plan. Blocks that take() returned become
  /// free.
  std::vector<SwappedSequence> tell();

  /// Returns the blocks of `id`, which is inside and comes back. They are not reused before tell().
  std::vector<std::int32_t> take(SequenceId id);

  /// Frees the blocks of a sequence that has ended; does nothing if it is not here.
  void drop(SequenceId id);

  std::span<const SwappedSequence> going_out() const { return going_out_; }   ///< not reported yet
  std::span<const SwappedSequence> inside() const { return inside_; }         ///< reported
  std::span<const std::int32_t> coming_back() const { return coming_back_; }  ///< blocks of take()
  bool is_empty() const { return going_out_.empty() && inside_.empty(); }

 private:
  void give_back(std::span<const std::int32_t> blocks);

  std::int32_t blocks_;
  std::int32_t unused_ = 0;  ///< the first block of those never used
  std::priority_queue<std::int32_t, std::vector<std::int32_t>, std::greater<>> returned_;
  std::vector<SwappedSequence> going_out_;
  std::vector<SwappedSequence> inside_;
  std::vector<std::int32_t> coming_back_;
};

}  // namespace troupe
