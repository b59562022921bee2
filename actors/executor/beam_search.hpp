#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "models/sampler/sampling_params.hpp"

namespace troupe {

/// A beam: tokens generated so far, and their log-probability.
struct Beam {
  std::vector<std::int32_t> tokens;     ///< an EOS that ended it included
  std::vector<TokenLogprobs> logprobs;  ///< one per token if asked for
  double logprob = 0.0;                 ///< sum over the tokens
  bool ended = false;                   ///< by an EOS
};

struct BeamSearchSpec {
  std::int32_t width = 1;  ///< beams kept
  float length_penalty = 1.0F;
  std::int32_t max_tokens = 1;             ///< that a beam generates
  std::size_t prompt_tokens = 1;           ///< at least 1
  std::vector<std::int32_t> eos_ids = {};  ///< empty: no beam ends early
  std::int32_t logprobs = -1;              ///< see SamplingParams; for the beams' tokens
};

/// Beam search as vLLM defines it (R. Lowerre 1976, The HARPY speech recognition system; without
/// early stopping). In every step each beam proposes its 2 * width likeliest tokens. A candidate
/// that ends in an EOS is complete and put aside; of the rest the `width` best go on. After
/// max_tokens steps the answer is the best of the complete and the living beams. A beam's score is
/// its log-probability over (prompt and generated tokens without the EOS) ^ length_penalty, in
/// double; of equal beams the one proposed first is better. A pure function of the proposals.
class BeamSearch {
 public:
  explicit BeamSearch(BeamSearchSpec spec);

  /// The number of tokens that a beam must propose.
  std::int32_t proposals() const { return 2 * spec_.width; }

  /// The beams that go on, best first: one without tokens at the beginning; none at the end.
  std::span<const Beam> beams() const { return beams_; }

  /// Takes a step: `proposed[i]` holds the likeliest next tokens of beam i, best first (top_ids
  /// and top_logprobs; fewer than proposals() if the vocabulary is smaller).
  void advance(std::span<const TokenLogprobs> proposed);

  /// The `count` best beams, best first, or all if there are fewer. Call when beams() is empty.
  std::vector<Beam> best(std::size_t count) const;

 private:
  /// One token proposed by a beam.
  struct Candidate {
    std::size_t beam = 0;
    std::size_t k = 0;
    double logprob = 0.0;  ///< of the beam extended by it
  };

  double score(const Beam& beam) const;
  void sort_and_cut(std::vector<Beam>& beams, std::size_t count) const;
  Beam extend(const Candidate& candidate, const TokenLogprobs& proposed, bool ended) const;

  BeamSearchSpec spec_;
  std::int32_t steps_ = 0;
  std::vector<Beam> beams_;
  std::vector<Beam> complete_;
};

}  // namespace troupe
