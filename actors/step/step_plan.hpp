#pragma once

#include <cstdint>
#include <vector>

#include "models/sampler/sampling_params.hpp"

namespace troupe {

/// Names a sequence on the executor and all its workers; small and reused after release.
using SequenceId = std::uint32_t;

/// A sequence the workers have not seen: everything they keep of it until it is released.
struct NewSequence {
  SequenceId id = 0;
  std::vector<std::int32_t> tokens;  ///< the prompt (with what was generated before a recompute)
  std::int32_t prompt_tokens = 0;    ///< how many of `tokens` are the prompt
  std::int32_t cached_tokens = 0;    ///< the first so many have their keys and values in its blocks
  SamplingParams sampling;
};

/// One sequence's share of a step: positions [first_position, first_position + tokens), whose ids
/// the workers of the first stage know (prompt, or sampled by the last stage in an earlier step) or
/// find in `drafts`.
struct SequenceStep {
  SequenceId id = 0;
  std::int32_t first_position = 0;
  std::int32_t tokens = 0;
  /// Appended to the sequence's block tables before the pass: as many for each cache group, group
  /// after group; -1 for one that the group's window has left.
  std::vector<std::int32_t> new_blocks;
  bool sample = false;  ///< the last known token is among these: sample its successor
  /// Guesses of what follows the last known token, the last of `tokens`. Sampling goes on over them
  /// as long as each is what was sampled. Only with `sample`.
  std::vector<std::int32_t> drafts = {};
};

/// One step as the executor tells it to the workers: deltas only. Applied in this order: released,
/// started, steps.
struct StepPlan {
  std::uint64_t step = 0;   ///< counts up by one
  std::uint32_t epoch = 0;  ///< of the group; plans of another epoch are dropped
  std::vector<SequenceId> released;
  std::vector<NewSequence> started;
  std::vector<SequenceStep> steps;
};

/// A sampled successor, or the scores of a prompt's tokens, of one sequence in one step.
struct SequenceResult {
  SequenceId id = 0;
  std::vector<std::int32_t> tokens;     ///< sampled ids: one, and one more for each draft that held
  std::vector<TokenLogprobs> logprobs;  ///< one per sampled id if asked for
  /// Scores of prompt tokens at positions [prompt_begin, ...): token i given those before it.
  std::int32_t prompt_begin = 0;
  std::vector<TokenLogprobs> prompt_logprobs;
  bool failed = false;                    ///< its logits were not finite; nothing was sampled
  std::vector<std::int32_t> drafts = {};  ///< a draft model's guesses of what follows
};

/// What the workers answer to the plan of the same number.
struct StepResult {
  std::uint64_t step = 0;
  std::uint32_t epoch = 0;
  std::vector<SequenceResult> results;
  std::uint32_t model_us = 0;  ///< in the step on the answering rank, waits for others included
};

}  // namespace troupe
