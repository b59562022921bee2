#include "models/layers/parallel/spans_of_rows.hpp"

#include <algorithm>

namespace troupe {

std::vector<SequenceSpan> spans_of_rows(std::span<const SequenceSpan> sequences, Slice rows) {
  std::vector<SequenceSpan> found;
  for (const SequenceSpan& whole : sequences) {
    const std::int64_t begin = std::max<std::int64_t>(whole.first_row, rows.begin);
    const std::int64_t end = std::min<std::int64_t>(whole.first_row + whole.rows, rows.end());
    if (begin >= end) continue;
    SequenceSpan own = whole;
    own.first_row = static_cast<std::int32_t>(begin - rows.begin);
    own.rows = static_cast<std::int32_t>(end - begin);
    own.first_position += static_cast<std::int32_t>(begin - whole.first_row);
    found.push_back(own);
  }
  return found;
}

std::vector<SequenceSpan> spans_of_single_rows(std::span<const SequenceSpan> sequences,
                                               std::span<const std::int32_t> rows) {
  std::vector<SequenceSpan> found;
  auto sequence = sequences.begin();
  for (const std::int32_t row : rows) {
    while (row >= sequence->first_row + sequence->rows) ++sequence;
    found.push_back({.first_row = static_cast<std::int32_t>(found.size()),
                     .rows = 1,
                     .first_position = sequence->first_position + row - sequence->first_row,
                     .block_offset = sequence->block_offset});
  }
  return found;
}

}  // namespace troupe
