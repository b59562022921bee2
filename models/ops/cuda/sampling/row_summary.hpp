// A GPU's summaries of rows of logits to sample from (row_summary.cuh).
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::cuda {

constexpr int group_tokens = 256;
constexpr int max_groups = 1024;             // per row: 2^18 tokens
constexpr std::size_t max_summarized = 512;  // rows at once

/// A group of logits.
struct GroupSummary {
  float max;  // NaN if a logit is not finite
  float sum;  // of e^((logit - max) / temperature)
};

/// Rows whose choice needs exact weights.
struct PendingRows {
  std::uint32_t count;
  std::uint32_t taken;                // besides the first that each cluster takes
  std::int32_t rows[max_summarized];  // indices into the rows to sample
};

struct SummaryMemory {
  PendingRows pending;
  alignas(16) GroupSummary groups[max_summarized * max_groups];
};

}  // namespace troupe::cuda
