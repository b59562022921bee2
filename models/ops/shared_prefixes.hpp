#pragma once

#include <cstdint>
#include <vector>

#include "models/ops/attention_ops.hpp"

namespace troupe {

/// Sequences of a batch whose block tables begin with the same entries, so that attention can read
/// the keys and values of these blocks once for all of them.
struct SharedPrefix {
  std::vector<std::int32_t> sequences;  ///< two and more, by their index in the batch, rising
  std::int32_t blocks = 0;              ///< of the cache, shared by all
  bool operator==(const SharedPrefix&) const = default;

  /// Blocks that sequences need not read because another one of them does.
  std::int64_t saved_blocks() const { return (std::ssize(sequences) - 1) * std::int64_t{blocks}; }
};

/// Finds the prefixes that sequences of one row share; each sequence has one at most. Of prefixes
/// within prefixes it takes those that save the most blocks. A sequence takes part if its row sees
/// all positions from the first on, `window` (0: none) included, and with whole blocks before the
/// row's own only: another one's row may be in the same pass. None if the batch has no tables on
/// the host. Takes time proportional to the tables' entries.
std::vector<SharedPrefix> find_shared_prefixes(const AttentionBatch& batch, std::int64_t window);

}  // namespace troupe
