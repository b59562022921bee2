#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <span>
#include <vector>

#include "actors/step/step_plan.hpp"

namespace troupe {

/// Where in host memory one sequence's keys and values are.
struct SwappedSequence {
  SequenceId id = 0;
  std::vector<std::int32_t> host_blocks;  ///< one for each block that it held
};

/// Which sequences' keys and values are in host memory, and in which of its blocks. A sequence goes
/// out with put(), is there from the next tell() on, and comes back with take(). Blocks are given
/// lowest first, so that memory that was never needed is never touched. One thread at a time.
class SwapSpace {
 public:
  explicit SwapSpace(std::int32_t blocks) : blocks_(blocks) {}

  std::int32_t blocks() const { return blocks_; }
  std::int32_t free_blocks() const {
    return blocks_ - unused_ + static_cast<std::int32_t>(returned_.size());
  }

  /// `id`, which is not here, goes to `count` blocks; false, and nothing taken, if fewer are free.
  bool put(SequenceId id, std::int32_t count);

  /// What the next plan tells of what went out. Blocks that take() gave are free from now on.
  std::vector<SwappedSequence> tell();

  /// The blocks of `id`, which is inside and comes back. They are not handed out before tell().
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
  std::int32_t unused_ = 0;  ///< the first block that was never given, nor any behind it
  std::priority_queue<std::int32_t, std::vector<std::int32_t>, std::greater<>> returned_;
  std::vector<SwappedSequence> going_out_;
  std::vector<SwappedSequence> inside_;
  std::vector<std::int32_t> coming_back_;
};

}  // namespace troupe
