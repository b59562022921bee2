#include "models/ops/cuda/attention/prefix_plan.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace {

/// Bytes that a prefix must save reading: shorter ones cost more than they save beside others.
constexpr std::int64_t min_saved_bytes = std::int64_t{4} << 20;
/// Tiles of a part, at least: shorter ones leave more to add than they compute.
constexpr std::int64_t min_tiles = 4;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t rows_of_block(const AttentionShape& shape) {
  return prefix_columns / (shape.heads / shape.kv_heads);
}

}  // namespace

std::vector<PrefixPlan::Prefix> PrefixPlan::prefixes_of(const AttentionShape& shape,
                                                        const AttentionBatch& batch, bool always) {
  const std::int64_t bytes_of_position =
      shape.cached_elements() * static_cast<std::int64_t>(size_of(DType::bf16));
  std::vector<Prefix> prefixes;
  std::int64_t saved = 0;
  for (SharedPrefix& shared : find_shared_prefixes(batch, shape.window)) {
    Prefix prefix{.shared = std::move(shared)};
    prefix.positions = std::int64_t{prefix.shared.blocks} * batch.block_size;
    prefix.tiles = ceil_div(prefix.positions, prefix_tile(static_cast<int>(shape.head_dim)));
    prefix.blocks = ceil_div(std::ssize(prefix.shared.sequences), rows_of_block(shape));
    const std::int64_t saved_here = prefix.saved_positions() * bytes_of_position;
    if (saved_here <= 0 || (saved_here < min_saved_bytes && !always)) continue;
    saved += saved_here;
    prefixes.push_back(std::move(prefix));
  }
  const bool pays = always || cascade_pays(std::ssize(batch.sequences), saved);
  return pays ? prefixes : std::vector<Prefix>();
}

Result<void> PrefixPlan::make(const AttentionShape& shape, const AttentionBatch& batch,
                              const Limits& limits, cudaStream_t stream) {
  shares_.clear();
  shared_positions_ = 0;
  const std::vector<Prefix> prefixes = prefixes_of(shape, batch, limits.always);
  if (prefixes.empty()) return {};
  const int head_dim = static_cast<int>(shape.head_dim), tile = prefix_tile(head_dim);
  const auto rows = std::ssize(batch.sequences);
  const std::int64_t at_once = std::max<std::int64_t>(
      std::int64_t{cuda::multiprocessors()} * prefix_blocks(head_dim) / shape.kv_heads, 1);
  constexpr std::int64_t usual_rows = 4;  // of a prefix's block, or more
  const std::int64_t entries = rows / usual_rows + at_once;
  std::int64_t all_tiles = 0;
  for (const Prefix& prefix : prefixes) all_tiles += prefix.blocks * prefix.tiles;
  const auto fits = [&](std::int64_t each) {
    std::int64_t items = 0, slots = 0;
    for (const Prefix& prefix : prefixes) {
      const std::int64_t parts = ceil_div(prefix.tiles, each);
      items += prefix.blocks * parts;
      slots += std::ssize(prefix.shared.sequences) * parts;
    }
    return items <= entries && slots <= limits.max_slots;
  };
  // All blocks run at once, each with an equal share.
  std::int64_t each = std::max(ceil_div(all_tiles, at_once), min_tiles);
  const std::int64_t most = std::int64_t{max_prefix_pages} * attention_page / tile;
  while (each <= most && !fits(each)) each += ceil_div(each, 8);
  if (each > most) return {};
  return fill(prefixes, entries, each, tile, batch, stream);
}

Result<void> PrefixPlan::fill(std::span<const Prefix> prefixes, std::int64_t entries,
                              std::int64_t tiles_of_part, int tile, const AttentionBatch& batch,
                              cudaStream_t stream) {
  const std::size_t room = batch.sequences.size();
  TROUPE_TRY(const std::span<PrefixItem> all_items,
             begin(entries, std::ssize(batch.sequences), room * sizeof(PrefixRow)));
  const std::span all_rows(reinterpret_cast<PrefixRow*>(behind().data()), room);
  shares_.assign(batch.sequences.size(), {});
  std::size_t next_row = 0, next_item = 0;
  std::int32_t slot = 0;
  for (const Prefix& prefix : prefixes) {
    const std::vector<std::int32_t>& sequences = prefix.shared.sequences;
    const std::int64_t about = ceil_div(prefix.tiles, tiles_of_part);
    const std::int64_t pages = ceil_div(prefix.tiles, about) * (tile / attention_page);
    const std::int64_t all_pages = prefix.positions / attention_page;
    const std::int64_t parts = ceil_div(all_pages, pages);
    const std::int64_t rows = ceil_div(std::ssize(sequences), prefix.blocks);
    for (std::int64_t first = 0; first < std::ssize(sequences); first += rows) {
      const std::int64_t here = std::min(rows, std::ssize(sequences) - first);
      for (std::int64_t p = 0; p < parts; ++p) {
        const auto some = static_cast<std::size_t>(first);
        const SequenceSpan& span = batch.sequences[static_cast<std::size_t>(sequences[some])];
        all_items[next_item++] = {
            .table = span.block_offset,
            .first_page = static_cast<std::int32_t>(p * pages),
            .pages = static_cast<std::int32_t>(std::min(pages, all_pages - p * pages)),
            .first_row = static_cast<std::int32_t>(next_row),
            .rows = static_cast<std::int32_t>(here),
            .part = static_cast<std::int32_t>(p)};
      }
      for (std::int64_t i = first; i < first + here; ++i) {
        const std::int32_t row = sequences[static_cast<std::size_t>(i)];
        all_rows[next_row++] = {.row = row, .slot = slot};
        shares_[static_cast<std::size_t>(row)] = {
            .positions = static_cast<std::int32_t>(prefix.positions),
            .parts = static_cast<std::int16_t>(parts),
            .slot = slot};
        slot += static_cast<std::int32_t>(parts);
      }
    }
    shared_positions_ += prefix.saved_positions();
  }
  std::ranges::fill(all_rows.subspan(next_row), PrefixRow{});
  return finish(next_item, stream);
}

}  // namespace troupe
