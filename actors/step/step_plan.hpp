#pragma once

#include <cstdint>
#include <vector>

#include "models/sampler/sampling_params.hpp"

namespace troupe {

/// Identifies a sequence on the executor and all its workers; small and reused after release.
using SequenceId = std::uint32_t;

/// A sequence new to the workers: everything they keep of it until it is released.
struct NewSequence {
  SequenceId id = 0;
  std::vector<std::int32_t> tokens;  ///< the prompt (with what was generated before a recompute)
  std::int32_t prompt_tokens = 0;    ///< how many of `tokens` are the prompt
  std::int32_t cached_tokens = 0;    ///< leading tokens whose KV is already in its blocks
  SamplingParams sampling = {};
};

/// A sequence to be swapped out: its KV goes to host memory. It then has no blocks, and is in no
/// step until it is swapped in again.
struct SwapOut {
  SequenceId id = 0;
  /// One for each entry of its block tables, group after group; -1 for blocks that left a group's
  /// window, which are not kept.
  std::vector<std::int32_t> host_blocks;
};

/// Swaps a sequence in again. It is in a step from the next plan on at the earliest.
struct SwapIn {
  SequenceId id = 0;
  std::vector<std::int32_t> host_blocks;  ///< those of its SwapOut
  std::vector<std::int32_t> blocks;       ///< its new tables; -1 where host_blocks is
};

/// One sequence's share of a step: positions [first_position, first_position + tokens), whose ids
/// the workers of the first stage know (prompt, or sampled by the last stage in an earlier step) or
/// find in `drafts`.
struct SequenceStep {
  SequenceId id = 0;
  std::int32_t first_position = 0;
  std::int32_t tokens = 0;
  /// Appended to the sequence's block tables before the pass: as many for each cache group, group
  /// after group; -1 for a block that left the group's window.
  std::vector<std::int32_t> new_blocks = {};
  bool sample = false;  ///< the last known token is among these: sample its successor
  /// Guesses of the tokens after the last known one, the last of `tokens`. Sampling continues over
  /// them as long as each equals the sampled token. Only with `sample`.
  std::vector<std::int32_t> drafts = {};
};

/// One step as the executor sends it to the workers: deltas only. Applied in this order:
/// widened_layers, released, swapped_out, swapped_in, started, steps. The swap owns its blocks on
/// both sides until the next plan, so that workers may copy while they compute: this plan's steps
/// write to no block that goes out (others may share it) and touch none that comes in.
struct StepPlan {
  std::uint64_t step = 0;   ///< counts up by one
  std::uint32_t epoch = 0;  ///< of the group; plans of another epoch are dropped
  /// Layers whose products leave activations as they are from this step on, though they have 8-bit
  /// weights (Model::widen_layers). A layer may come again.
  std::vector<std::int32_t> widened_layers = {};
  std::vector<SequenceId> released;
  std::vector<SwapOut> swapped_out;
  std::vector<SwapIn> swapped_in;
  std::vector<NewSequence> started;
  std::vector<SequenceStep> steps;
};

/// A sampled successor, or the scores of a prompt's tokens, of one sequence in one step.
struct SequenceResult {
  SequenceId id = 0;
  std::vector<std::int32_t> tokens;     ///< sampled ids: one, plus one for each accepted draft
  std::vector<TokenLogprobs> logprobs;  ///< one per sampled id if asked for
  /// Scores of prompt tokens at positions [prompt_begin, ...): token i given the tokens before it.
  std::int32_t prompt_begin = 0;
  std::vector<TokenLogprobs> prompt_logprobs;
  bool failed = false;                    ///< its logits were not finite; nothing was sampled
  std::vector<std::int32_t> drafts = {};  ///< a draft model's guesses of the next tokens
};

/// The workers' answer to the plan of the same number.
struct StepResult {
  std::uint64_t step = 0;
  std::uint32_t epoch = 0;
  std::vector<SequenceResult> results;
  std::uint32_t model_us = 0;  ///< in the step on the answering rank, waits for others included
  /// PlannedAttention::shared_positions of its passes, on the answering rank.
  std::uint64_t shared_positions = 0;
};

}  // namespace troupe
