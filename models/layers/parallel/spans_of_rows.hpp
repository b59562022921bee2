#pragma once

#include <span>
#include <vector>

#include "models/ops/attention_ops.hpp"
#include "parallel/sharding/sharding.hpp"

namespace troupe {

/// Returns the parts of a pass's sequences that are in its rows `rows`, numbered from there.
std::vector<SequenceSpan> spans_of_rows(std::span<const SequenceSpan> sequences, Slice rows);

/// Returns a span of one row for each of `rows`, which rise, numbered in their order.
std::vector<SequenceSpan> spans_of_single_rows(std::span<const SequenceSpan> sequences,
                                               std::span<const std::int32_t> rows);

}  // namespace troupe
