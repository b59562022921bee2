#pragma once

#include <span>
#include <vector>

#include "models/ops/ops.hpp"
#include "parallel/sharding/sharding.hpp"

namespace troupe {

/// The rows of a pass that this rank computes (ContextGroup), as attention sees them: whole, or cut
/// into chunks like TensorGroup cuts them, each chunk a batch of its own. A chunk's rows see what
/// earlier chunks have written to the cache, so chunks are processed in order. Valid as long as the
/// AttentionBatch that it is made from.
class AttentionMetadata {
 public:
  /// `own`: this rank's rows of `pass`. `parts` cover these, counted from their first, one after
  /// another; a single one covers all, as in every pass of which others have rows, too.
  AttentionMetadata(const AttentionBatch& pass, Slice own, std::span<const Slice> parts);
  AttentionMetadata(AttentionMetadata&&) = default;

  /// All rows of this rank.
  const AttentionBatch& whole() const { return whole_; }
  /// [rows of all context ranks] i32, in the order of the pass.
  const Tensor& kv_slots_of_pass() const { return kv_slots_of_pass_; }
  /// The batches to plan and attend to: the chunks, or the whole.
  std::span<const AttentionBatch> batches() const {
    return parts_.empty() ? std::span(&whole_, 1) : std::span(parts_);
  }
  /// The batch of these rows, which are a chunk's, or all if the pass is not cut.
  const AttentionBatch& of(Slice rows) const;

 private:
  AttentionBatch whole_;
  Tensor kv_slots_of_pass_;
  std::vector<AttentionBatch> parts_;                 // none if it is not cut
  std::vector<std::vector<SequenceSpan>> sequences_;  // of each part, or of the own rows
};

}  // namespace troupe
