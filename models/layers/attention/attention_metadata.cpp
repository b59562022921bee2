#include "models/layers/attention/attention_metadata.hpp"

#include <algorithm>
#include <cassert>

namespace troupe {
namespace {

/// Cuts the sequences of a pass to the rows `rows`, numbered from there.
std::vector<SequenceSpan> cut(std::span<const SequenceSpan> sequences, Slice rows) {
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

}  // namespace

AttentionMetadata::AttentionMetadata(const AttentionBatch& whole, std::span<const Slice> parts)
    : whole_(whole) {
  if (parts.size() == 1) return;
  for (const Slice rows : parts) sequences_.push_back(cut(whole.sequences, rows));
  for (std::size_t p = 0; p < parts.size(); ++p) {
    AttentionBatch part = whole;
    part.positions = whole.positions.rows(parts[p].begin, parts[p].count);
    part.kv_slots = whole.kv_slots.rows(parts[p].begin, parts[p].count);
    part.sequences = sequences_[p];
    part.first_row = parts[p].begin;
    part.part = static_cast<int>(p);
    parts_.push_back(part);
  }
}

const AttentionBatch& AttentionMetadata::of(Slice rows) const {
  const auto part = std::ranges::find_if(parts_, [&](const AttentionBatch& batch) {
    return batch.first_row == rows.begin && batch.positions[0] == rows.count;
  });
  assert(parts_.empty() || part != parts_.end());
  return part == parts_.end() ? whole_ : *part;
}

}  // namespace troupe
