#include "models/layers/parallel/context_split.hpp"

#include <cassert>

#include "models/layers/parallel/spans_of_rows.hpp"

namespace troupe {
namespace {

/// The i-th of `slices` of the rows.
Slice slice_of(std::int64_t rows, int i, int slices) {
  const std::int64_t begin = rows * i / slices;
  return {begin, rows * (i + 1) / slices - begin};
}

}  // namespace

ContextSplit ContextSplit::contiguous(std::int64_t rows, int ranks) {
  ContextSplit split;
  for (int rank = 0; rank < ranks; ++rank) {
    split.slices_.push_back(slice_of(rows, rank, ranks));
    split.rows_per_rank_.push_back(split.slices_.back().count);
  }
  return split;
}

ContextSplit ContextSplit::zigzag(std::int64_t rows, int ranks) {
  assert(rows >= 2 * ranks);
  ContextSplit split;
  for (int rank = 0; rank < ranks; ++rank) {
    const Slice early = slice_of(rows, rank, 2 * ranks);
    const Slice late = slice_of(rows, 2 * ranks - 1 - rank, 2 * ranks);
    split.slices_.insert(split.slices_.end(), {early, late});
    split.rows_per_rank_.push_back(early.count + late.count);
  }
  return split;
}

std::int32_t ContextSplit::place_of(std::int32_t row) const {
  std::int64_t place = 0;
  for (const Slice& slice : slices_) {
    if (row >= slice.begin && row < slice.end()) {
      return static_cast<std::int32_t>(place + row - slice.begin);
    }
    place += slice.count;
  }
  assert(false);
  return -1;
}

std::vector<std::int32_t> ContextSplit::reorder(std::span<const std::int32_t> values) const {
  std::vector<std::int32_t> reordered;
  reordered.reserve(values.size());
  for (const Slice& slice : slices_) {
    const auto part = values.subspan(static_cast<std::size_t>(slice.begin),
                                     static_cast<std::size_t>(slice.count));
    reordered.insert(reordered.end(), part.begin(), part.end());
  }
  return reordered;
}

ContextSplit::Sequences ContextSplit::reorder(std::span<const SequenceSpan> spans,
                                              std::span<const std::int32_t> tables) const {
  Sequences reordered;
  std::int64_t place = 0;
  for (const Slice& slice : slices_) {
    for (std::size_t i = 0; i < spans.size(); ++i) {
      const bool is_last = i + 1 == spans.size();
      const auto begin = static_cast<std::size_t>(spans[i].block_offset);
      const auto end =
          is_last ? tables.size() : static_cast<std::size_t>(spans[i + 1].block_offset);
      for (SequenceSpan own : spans_of_rows(spans.subspan(i, 1), slice)) {
        own.first_row += static_cast<std::int32_t>(place);
        own.block_offset = static_cast<std::int32_t>(reordered.tables.size());
        reordered.spans.push_back(own);
        const auto table = tables.subspan(begin, end - begin);
        reordered.tables.insert(reordered.tables.end(), table.begin(), table.end());
      }
    }
    place += slice.count;
  }
  return reordered;
}

}  // namespace troupe
