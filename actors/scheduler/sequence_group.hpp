#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "actors/scheduler/kv_tables.hpp"
#include "actors/scheduler/scheduling_policy.hpp"
#include "actors/step/step_plan.hpp"
#include "models/sampler/sampling_params.hpp"

namespace troupe {

/// A request as the scheduler takes it: tokenised, its sampling complete. Its sequences share the
/// prompt and the parameters.
struct SequenceGroupSpec {
  std::uint64_t request = 0;  ///< the caller's name for it, unique among live requests
  std::vector<std::int32_t> prompt;
  SamplingParams sampling;  ///< of sequence 0; the others do not score the prompt
  /// Sequences 0 to choices - 1 are sampled as the choices of their number.
  std::int32_t choices = 1;
  /// Above 0: the sequences are beams of a search of this width, which generate one token each.
  /// There is one at first; Scheduler::advance says which follow. max_tokens is the search's.
  std::int32_t beam_width = 0;
  std::int32_t priority = 0;                     ///< for SchedulingPolicy::priority
  std::optional<std::int64_t> deadline_us = {};  ///< for SchedulingPolicy::deadline
};

/// Why a sequence ended.
enum class SequenceEnd : std::uint8_t {
  stop,    ///< one of its stop tokens came; it is the last of its tokens
  length,  ///< max_tokens are generated (0: the prompt is scored), or max_model_len is reached
  failed,  ///< a worker found its logits not finite
};

/// What one step brought to one sequence.
struct SequenceUpdate {
  std::uint64_t request = 0;
  std::int32_t sequence = 0;         ///< its number in the request
  std::vector<std::int32_t> tokens;  ///< new ones, in order; none after a stop token or the limit
  std::vector<TokenLogprobs> logprobs;  ///< one per new token if asked for
  std::int32_t prompt_begin = 0;        ///< position of the first token of `prompt_logprobs`
  std::vector<TokenLogprobs> prompt_logprobs;
  std::optional<SequenceEnd> end;  ///< set in the last update of a sequence
};

/// A live request in the Scheduler: what its sequences share, and where they are. Sequences that
/// have not begun take no memory: only the next of them waits, the others are a number here.
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
  SchedulingRank rank;             ///< of sequence 0; the others come behind it
  std::vector<Member> members;
  std::int32_t made = 0;    ///< sequences that are members or were
  std::int32_t unmade = 0;  ///< choices that are still to be made
  bool admitted = false;    ///< some sequence was

  std::int32_t beam_width = 0;
  std::int32_t reserved_ids = 0;  ///< of the beams' ids, those that none of them has now
  /// What beams that have ended held: kept so that those which follow find it. The first are from
  /// the last step of the search, the second from the one that runs.
  std::vector<SequenceBlocks> parent_blocks;
  std::vector<SequenceBlocks> ended_blocks;

  bool is_search() const { return beam_width > 0; }
  std::size_t live() const { return members.size() + static_cast<std::size_t>(unmade); }
};

}  // namespace troupe
