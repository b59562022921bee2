#include "models/layers/attention/attention_metadata.hpp"

#include <algorithm>
#include <cassert>

#include "models/layers/parallel/spans_of_rows.hpp"

namespace troupe {
namespace {

AttentionBatch batch_of_rows(const AttentionBatch& whole, Slice rows, int part,
                             std::span<const SequenceSpan> sequences) {
  AttentionBatch batch = whole;
  batch.positions = whole.positions.rows(rows.begin, rows.count);
  batch.kv_slots = whole.kv_slots.rows(rows.begin, rows.count);
  batch.sequences = sequences;
  batch.first_row = rows.begin;
  batch.part = part;
  return batch;
}

}  // namespace

AttentionMetadata::AttentionMetadata(const AttentionBatch& pass, Slice own,
                                     std::span<const Slice> parts)
    : whole_(pass), kv_slots_of_pass_(pass.kv_slots) {
  if (own.count != pass.positions.elements()) {
    assert(parts.size() == 1);
    sequences_.push_back(spans_of_rows(pass.sequences, own));
    whole_ = batch_of_rows(pass, own, 0, sequences_.front());
  }
  if (parts.size() == 1) return;
  for (const Slice rows : parts) sequences_.push_back(spans_of_rows(pass.sequences, rows));
  for (std::size_t p = 0; p < parts.size(); ++p) {
    parts_.push_back(batch_of_rows(pass, parts[p], static_cast<int>(p), sequences_[p]));
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
