#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/sampler/logits_editor.hpp"
#include "models/sampler/sampling_params.hpp"

namespace troupe {

/// Buffers that sampling reuses between calls; grown to the vocabulary, then no call allocates. No
/// results carry over between calls. One per thread.
struct SamplerScratch {
  std::vector<float> block_max;   ///< [vocab / 64, rounded up]
  std::vector<float> values;      ///< [vocab] candidates' logits
  std::vector<float> weights;     ///< [vocab] exp((logit - max) / temperature) of candidates
  std::vector<std::int32_t> ids;  ///< [vocab] candidates' ids, rising
  std::vector<std::uint64_t> bucket_sums;  ///< [about 2,000] weights by size, for top_p
  std::vector<std::int32_t> selection;     ///< [vocab] indices of candidates
  LogitsEditor editor;
};

/// A sampled id, or `failed` (id -1) if a logit was NaN or infinite, or no token was left.
struct SampledToken {
  std::int32_t id = -1;
  bool failed = false;
};

/// Samples the next token of a sequence from `logits` [vocab] f32 on the host (1 to 2^20 of them).
///
/// Order of vLLM V1: first the edits that LogitsEditor lists, then temperature, min_p, top_k,
/// top_p. min_p keeps tokens whose probability is at least min_p times the largest; top_k keeps the
/// k best of these (and all that equal the k-th). top_p renormalises the rest and drops, starting
/// with the least likely, every token whose ascending cumulative probability is <= 1 - top_p (of
/// equally likely ones the higher id first); the best always stays. A temperature below 1e-5 is
/// greedy: the largest logit, the lowest id of equals.
///
/// The random number is Philox4x32-10 at counter (position, choice), key seed: a pure function of
/// the arguments, independent of the batch. The position is that of the new token, counted from the
/// first of the prompt; `params.choice` numbers the answers to one prompt. A weight, e^((logit -
/// max) / temperature), is built of fp32 additions and multiplications in a fixed order, without
/// the math library; sums of weights are integers. So the same logits give the same id on every
/// machine and device.
SampledToken sample(std::span<const float> logits, const SamplingParams& params,
                    const TokenHistory& history, SamplerScratch& scratch);

/// The same without the edits of `params`; `choice` replaces theirs.
SampledToken sample(std::span<const float> logits, const SamplingParams& params,
                    std::uint64_t position, std::uint32_t choice, SamplerScratch& scratch);

/// The natural-log probability of a `logit` under a softmax whose largest logit is `max`, where
/// weights at temperature 1 add up to `sum`, in units of 2^-44, like token_logprobs.
float log_probability(float logit, float max, std::uint64_t sum);

/// The natural-log probability of `token` (0 <= token < vocab) under softmax(logits), raw: before
/// temperature and penalties, its rank, and the `n` best tokens (at most vocab), best first, lower
/// id first among equals. Logits must be finite. Within 1e-5 of the exact value.
TokenLogprobs token_logprobs(std::span<const float> logits, std::int32_t token, std::int32_t n,
                             SamplerScratch& scratch);

}  // namespace troupe
