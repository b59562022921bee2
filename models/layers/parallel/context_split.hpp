#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/ops/attention_ops.hpp"
#include "parallel/sharding/sharding.hpp"

namespace troupe {

/// How the rows of a pass are divided over context ranks. A divided pass has its rows in an order
/// in which each rank's are adjacent, rank after rank. A pure value: all ranks make the same one.
class ContextSplit {
 public:
  /// A slice for each rank; the slices' lengths differ by at most one. The pass keeps its order.
  static ContextSplit contiguous(std::int64_t rows, int ranks);
  /// Two such slices for each rank: of 2 * ranks, rank r has the r-th and the r-th from the end. So
  /// each has an early and a late part of a long prompt, and causal attention costs all of them the
  /// same (Llama 3, Grattafiori et al. 2024, section 3.3.2). rows >= 2 * ranks.
  static ContextSplit zigzag(std::int64_t rows, int ranks);

  /// True if the divided pass has another order than the undivided one.
  bool reorders() const { return slices_.size() > rows_per_rank_.size(); }
  /// The slices of the undivided pass, in the order of the divided one; none is empty.
  std::span<const Slice> slices() const { return slices_; }
  /// The rows of each rank.
  std::span<const std::int64_t> rows_per_rank() const { return rows_per_rank_; }

  /// Returns where the divided pass has `row` of the undivided one.
  std::int32_t place_of(std::int32_t row) const;
  /// Returns `values`, one for each row, in the order of the divided pass.
  std::vector<std::int32_t> reorder(std::span<const std::int32_t> values) const;
  /// Sequences with their block tables, one after another.
  struct Sequences {
    std::vector<SequenceSpan> spans;
    std::vector<std::int32_t> tables;
  };
  /// Returns the sequences of the divided pass. One that is in several slices has a span and a copy
  /// of its table for each.
  Sequences reorder(std::span<const SequenceSpan> spans,
                    std::span<const std::int32_t> tables) const;
  /// The most entries that reorder adds to the tables, if one has at most `longest`.
  static std::int64_t most_added_entries(int ranks, std::int64_t longest) {
    return (2 * ranks - 1) * longest;
  }

 private:
  ContextSplit() = default;

  std::vector<Slice> slices_;
  std::vector<std::int64_t> rows_per_rank_;
};

}  // namespace troupe
