#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "actors/scheduler/kv_tables.hpp"
#include "actors/scheduler/scheduling_policy.hpp"
#include "actors/scheduler/sequence_update.hpp"
#include "actors/step/step_plan.hpp"
#include "models/sampler/sampling_params.hpp"

namespace troupe {

/// A sequence of a request that has begun elsewhere and goes on here.
struct ResumedSequence {
  std::int32_t sequence = 0;         ///< within the request
  std::vector<std::int32_t> tokens;  ///< after the prompt; none for the first beam of a search
};

/// A request as the scheduler takes it: tokenised, with complete sampling parameters. Its sequences
/// share the prompt and the parameters.
struct SequenceGroupSpec {
  std::uint64_t request = 0;  ///< the caller's id, unique among live requests
  std::vector<std::int32_t> prompt;
  SamplingParams sampling;  ///< for sequence 0; the others do not score the prompt
  /// Sequence i < choices is sampled as choice i.
  std::int32_t choices = 1;
  /// Above 0: the sequences are beams of a search of this width, which generate one token each. It
  /// begins with one; Scheduler::advance gives the next ones. max_tokens is the search's.
  std::int32_t beam_width = 0;
  std::int32_t priority = 0;                     ///< for SchedulingPolicy::priority
  std::optional<std::int64_t> deadline_us = {};  ///< for SchedulingPolicy::deadline
  /// Of a request that goes on: the number of sequences that have begun, and those of them that
  /// have not ended, ascending. A search has at least one.
  std::int32_t begun = 0;
  std::vector<ResumedSequence> resumed = {};
};

/// A live request in the Scheduler: the state that its sequences share, and its sequences.
/// Sequences that have not begun take no memory: only the next one waits, the others are just
/// counted here.
struct SequenceGroup {
  /// A live sequence that is in a slot or waits.
  struct Member {
    std::int32_t sequence = 0;
    std::optional<SequenceId> slot;  ///< none: it waits
    SchedulingRank rank;
  };

  std::uint64_t request = 0;
  std::vector<std::int32_t> prompt;
  SamplingParams sampling;
  std::int32_t max_generated = 0;  ///< by a choice, or by a search
  SchedulingRank rank;             ///< of sequence 0; the others rank behind it
  std::vector<Member> members;
  std::int32_t made = 0;    ///< sequences that are or were members
  std::int32_t unmade = 0;  ///< choices that are not made yet
  bool admitted = false;    ///< true once any sequence was admitted

  std::int32_t beam_width = 0;
  std::int32_t reserved_ids = 0;  ///< ids for beams that no beam has now
  /// Blocks of ended beams, kept so that the next beams find them: first those of the search's last
  /// step, then those of the running one.
  std::vector<SequenceBlocks> parent_blocks;
  std::vector<SequenceBlocks> ended_blocks;

  bool is_search() const { return beam_width > 0; }
  std::size_t live() const { return members.size() + static_cast<std::size_t>(unmade); }
};

}  // namespace troupe
