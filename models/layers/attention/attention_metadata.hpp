#pragma once

#include <span>
#include <vector>

#include "models/ops/ops.hpp"
#include "parallel/sharding/sharding.hpp"

namespace troupe {

/// A pass as attention sees it: whole, or cut by rows as TensorGroup cuts it, each part a batch of
/// its own. A part's rows see what the parts before it have written to the cache, so parts are
/// attended to in their order. Valid as long as the AttentionBatch that it is made of.
class AttentionMetadata {
 public:
  /// `parts` cover the rows of `whole` one after another; one is all.
  AttentionMetadata(const AttentionBatch& whole, std::span<const Slice> parts);
  AttentionMetadata(AttentionMetadata&&) = default;

  const AttentionBatch& whole() const { return whole_; }
  /// What is planned and attended to: the parts, or the whole.
  std::span<const AttentionBatch> batches() const {
    return parts_.empty() ? std::span(&whole_, 1) : std::span(parts_);
  }
  /// The one of these rows, which are a part's or, where it is not cut, all.
  const AttentionBatch& of(Slice rows) const;

 private:
  AttentionBatch whole_;
  std::vector<AttentionBatch> parts_;                 // none if it is not cut
  std::vector<std::vector<SequenceSpan>> sequences_;  // of each part
};

}  // namespace troupe
