#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "actors/step/step_plan.hpp"
#include "actors/worker/kv_compactor.hpp"
#include "actors/worker/pass.hpp"
#include "models/layers/attention/cache_spec.hpp"
#include "models/model/model.hpp"
#include "models/sampler/sampler.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// A sequence as a worker knows it from the plans so far.
struct KnownSequence {
  /// The prompt and generated tokens; while a step runs, its drafts too. A token below 0 is not
  /// known here, or not yet.
  std::vector<std::int32_t> tokens;
  std::int32_t prompt_tokens = 0;
  std::int32_t computed = 0;  ///< positions whose keys and values were written to the cache
  std::int32_t dropped = 0;   ///< of these, how many the cache has not any more (KvPolicy)
  SamplingParams sampling;
  Pass::Tables tables;                    ///< [cache groups][blocks]
  std::vector<std::int32_t> host_blocks;  ///< SwapOut::host_blocks while it has no tables
  std::uint64_t awaits_message = 0;       ///< the message with its last token's id; 0: none ever
  std::uint64_t start = 0;                ///< distinguishes it from earlier sequences with its id
};

/// What a plan does to the KV cache before its passes.
struct CacheMoves {
  std::vector<SwappedBlock> out;  ///< to host memory
  std::vector<SwappedBlock> in;   ///< from host memory
  std::vector<SequenceCompaction> compactions;
};

/// The state that the plans' deltas add up to on one rank: each sequence's tokens and block tables.
/// Checks that a plan fits it. One thread at a time.
class SequenceTable {
 public:
  /// `knows_tokens`: this rank gets every token before a plan computes it; otherwise it knows only
  /// from plans that sampled ones exist.
  SequenceTable(const Model& model, std::int64_t kv_blocks, bool knows_tokens);

  /// Lets plans name this many blocks in host memory from now on; at first none.
  void allow_swaps(std::int64_t host_blocks) { host_blocks_ = host_blocks; }

  /// Applies what the plan releases, swaps, starts and grows, and what the KvPolicy drops before
  /// its steps; returns what is to be done to the cache for it.
  /// Errors: corrupt_data for a plan that does not fit (unknown sequence, positions out of order, a
  /// block or token that does not exist).
  Result<CacheMoves> apply(const StepPlan& plan);

  /// Returns where the row of a known sequence at `position` is, once the plan of that row is
  /// applied.
  RowPlace place_of(const KnownSequence& sequence, std::int32_t position) const;

  KnownSequence& at(SequenceId id) { return sequences_.at(id); }
  const KnownSequence& at(SequenceId id) const { return sequences_.at(id); }
  /// Returns null if it is unknown.
  KnownSequence* find(SequenceId id);
  std::size_t cache_groups() const { return groups_.size(); }

 private:
  Result<void> start(const NewSequence& started, std::uint64_t step);
  Result<void> swap_out(const SwapOut& swap, std::vector<SwappedBlock>& copies);
  Result<void> swap_in(const SwapIn& swap, std::vector<SwappedBlock>& copies);
  Result<void> check_step(const SequenceStep& step) const;
  /// Drops what is dropped before the step's first row.
  Result<void> compact(const SequenceStep& step, std::vector<SequenceCompaction>& compactions);
  Result<void> check_blocks(const SequenceStep& step) const;
  void take_blocks_and_drafts(const SequenceStep& step);

  std::int64_t vocab_;
  ModelLimits limits_;
  std::vector<CacheSpec> groups_;
  std::int64_t kv_blocks_;
  std::int64_t host_blocks_ = 0;
  bool knows_tokens_;
  std::uint64_t starts_ = 0;
  std::unordered_map<SequenceId, KnownSequence> sequences_;
};

}  // namespace troupe
