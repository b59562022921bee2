#include "models/ops/shared_prefixes.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

namespace troupe {
namespace {

/// A sequence whose prefix is looked for.
struct Candidate {
  std::int32_t sequence;
  std::span<const std::int32_t> table;  ///< of the blocks that it may share
};

/// Prefixes and how many blocks they save.
struct Found {
  std::vector<SharedPrefix> prefixes;
  std::int64_t saved_blocks = 0;
};

/// How many of the first `most` entries two tables have in common, of which `known` are.
std::size_t common_entries(std::span<const std::int32_t> a, std::span<const std::int32_t> b,
                           std::size_t known, std::size_t most) {
  most = std::min({most, a.size(), b.size()});
  if (most <= known) return most;
  // The usual case: a comparison of memory is many times as fast as a search for the difference.
  if (std::memcmp(&a[known], &b[known], (most - known) * sizeof(std::int32_t)) == 0) return most;
  const auto differing = std::mismatch(a.begin() + static_cast<std::ptrdiff_t>(known),
                                       a.begin() + static_cast<std::ptrdiff_t>(most),
                                       b.begin() + static_cast<std::ptrdiff_t>(known));
  return static_cast<std::size_t>(differing.first - a.begin());
}

/// The best prefixes among candidates that have the first `known` entries in common. Reorders them.
Found best_prefixes(std::span<Candidate> candidates, std::size_t known) {
  if (candidates.size() < 2) return {};
  std::size_t common = candidates.front().table.size();
  for (const Candidate& other : candidates.subspan(1)) {
    common = common_entries(candidates.front().table, other.table, known, common);
  }
  SharedPrefix whole{.sequences = {}, .blocks = static_cast<std::int32_t>(common)};
  for (const Candidate& candidate : candidates) whole.sequences.push_back(candidate.sequence);
  // Those that have more entries, by their next one.
  const auto longer = std::partition(candidates.begin(), candidates.end(),
                                     [&](const Candidate& c) { return c.table.size() <= common; });
  const auto next_of = [&](const Candidate& c) { return std::pair(c.table[common], c.sequence); };
  std::sort(longer, candidates.end(),
            [&](const Candidate& a, const Candidate& b) { return next_of(a) < next_of(b); });
  Found parts;
  for (auto first = longer; first != candidates.end();) {
    const auto last = std::find_if(first, candidates.end(), [&](const Candidate& c) {
      return c.table[common] != first->table[common];
    });
    Found part = best_prefixes({first, last}, common + 1);
    parts.saved_blocks += part.saved_blocks;
    std::ranges::move(part.prefixes, std::back_inserter(parts.prefixes));
    first = last;
  }
  if (common == 0 || parts.saved_blocks > whole.saved_blocks()) return parts;
  std::ranges::sort(whole.sequences);
  Found found;
  found.saved_blocks = whole.saved_blocks();
  found.prefixes.push_back(std::move(whole));
  return found;
}

}  // namespace

std::vector<SharedPrefix> find_shared_prefixes(const AttentionBatch& batch, std::int64_t window) {
  std::vector<Candidate> candidates;
  if (batch.host_block_tables.empty()) return {};
  for (std::size_t s = 0; s < batch.sequences.size(); ++s) {
    const SequenceSpan& span = batch.sequences[s];
    const bool sees_all = window == 0 || span.first_position < window;
    const auto blocks = static_cast<std::size_t>(span.first_position / batch.block_size);
    if (span.rows != 1 || blocks == 0 || !sees_all) continue;
    candidates.push_back(
        {static_cast<std::int32_t>(s),
         batch.host_block_tables.subspan(static_cast<std::size_t>(span.block_offset), blocks)});
  }
  return best_prefixes(candidates, 0).prefixes;
}

}  // namespace troupe
