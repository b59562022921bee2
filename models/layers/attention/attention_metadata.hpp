#pragma once

#include <span>
#include <vector>

#include "models/ops/ops.hpp"
#include "parallel/sharding/sharding.hpp"

namespace troupe {

/// A pass as attention sees it: whole, or cut into chunks of rows like TensorGroup cuts it, each
/// chunk a batch of its own. A chunk's rows see what earlier chunks have written to the cache, so
/// chunks are processed in order. Valid as long as the AttentionBatch that it is made from.
class AttentionMetadata {
 public:
  /// `parts` cover the rows of `whole` one after another; a single one covers all.
  AttentionMetadata(const AttentionBatch& whole, std::span<const Slice> parts);
  AttentionMetadata(AttentionMetadata&&) = default;

  const AttentionBatch& whole() const { return whole_; }
  /// The batches to plan and attend to: the chunks, or the whole.
  std::span<const AttentionBatch> batches() const {
    return parts_.empty() ? std::span(&whole_, 1) : std::span(parts_);
  }
  /// The batch of these rows, which are a chunk's, or all if the pass is not cut.
  const AttentionBatch& of(Slice rows) const;

 private:
  AttentionBatch whole_;
  std::vector<AttentionBatch> parts_;                 // none if it is not cut
  std::vector<std::vector<SequenceSpan>> sequences_;  // of each part
};

}  // namespace troupe
