#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "models/ops/attention_ops.hpp"
#include "models/ops/cuda/attention/batch_plans.hpp"

namespace troupe {

/// The keys that a row sees, of which sparse attention chooses.
struct SeenKeys {
  std::int32_t count = 0;
  std::int32_t block_offset = 0;  ///< of its sequence's block table
};

/// The rows of a batch under sparse attention, on the host and on the device: each is a sequence of
/// its own, and its blocks are the slots of the keys that it chooses, one key each.
class SparseRows : public ItemPlan<SequenceSpan> {
 public:
  using ItemPlan::ItemPlan;

  /// Plans the rows of `batch`. `slots` [rows, top_k] i32 is what choices are written to.
  Result<void> make(const AttentionShape& shape, const AttentionBatch& batch, const Tensor& slots,
                    cudaStream_t stream) {
    slots_ = slots;
    spans_.clear();
    std::vector<SeenKeys> seen;
    most_seen_ = 0;
    for (const SequenceSpan& span : batch.sequences) {
      for (std::int32_t i = 0; i < span.rows; ++i) {
        const std::int32_t row = span.first_row + i, count = span.first_position + i + 1;
        const auto top_k = static_cast<std::int32_t>(shape.index.top_k);
        spans_.push_back({.first_row = row,
                          .rows = 1,
                          .first_position = std::min(count, top_k) - 1,
                          .block_offset = row * top_k});
        seen.push_back({count, span.block_offset});
        most_seen_ = std::max(most_seen_, count);
      }
    }
    const auto rows = std::ssize(spans_);
    TROUPE_TRY(const std::span<SequenceSpan> items, begin(rows, rows, rows * sizeof(SeenKeys)));
    std::ranges::copy(spans_, items.begin());
    std::memcpy(behind().data(), seen.data(), behind().size());
    return finish(items.size(), stream);
  }

  const SeenKeys* seen() const { return reinterpret_cast<const SeenKeys*>(items() + entries()); }
  std::int32_t most_seen() const { return most_seen_; }
  const Tensor& slots() const { return slots_; }

  /// The batch whose attention is that of `batch` to the chosen keys, in a cache of blocks of one
  /// token. Valid as long as this plan is.
  AttentionBatch attended(const AttentionBatch& batch) const {
    AttentionBatch rows = batch;
    rows.block_tables = slots_;
    rows.sequences = spans_;
    rows.block_size = 1;
    rows.spans = Tensor(const_cast<SequenceSpan*>(items()), DType::i32,  // NOLINT: only read
                        {entries(), numbers_of_span});
    rows.first_row = 0;
    rows.host_block_tables = {};
    return rows;
  }

 private:
  std::vector<SequenceSpan> spans_;
  std::int32_t most_seen_ = 0;
  Tensor slots_;
};

}  // namespace troupe
