#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/sampler/sampling_params.hpp"

namespace troupe {

/// The tokens of a sequence when its next one is chosen.
struct TokenHistory {
  std::span<const std::int32_t> prompt;
  std::span<const std::int32_t> output;  ///< generated after the prompt
};

/// True if these parameters change logits before temperature and cuts. Most requests' do not, and
/// skip this file.
bool edits_logits(const SamplingParams& params);

/// True if parameters penalise tokens for being in the prompt or the output.
bool penalizes(const SamplingParams& params);

/// Appends the tokens that bad_words and min_tokens mask after this history.
void append_masked(const SamplingParams& params, const TokenHistory& history,
                   std::vector<std::int32_t>& ids);

/// Applies a request's per-token edits to the logits of its next token, in the order and by the
/// definitions of vLLM V1:
/// 1. allowed_token_ids: all others are masked (-inf);
/// 2. bad_words: the last token of a word is masked if the output ends in the word's others;
/// 3. min_tokens: stop_token_ids are masked while the output is shorter;
/// 4. logit_bias: added;
/// 5. penalties: a token of prompt or output has its logit divided by repetition_penalty if
///    positive, else multiplied with it (Keskar et al. 2019, CTRL, section 4.1); then
///    frequency_penalty times its count in the output is subtracted, then presence_penalty if it is
///    in the output.
/// Ids outside the vocabulary are ignored. A pure function of the arguments, fp32, whose cost is a
/// copy of the logits and a visit of each token of the history. Keeps buffers between calls; one
/// per thread.
class LogitsEditor {
 public:
  /// Returns the edited copy of `logits` [vocab] f32, which are finite. Valid until the next call.
  std::span<const float> edit(std::span<const float> logits, const SamplingParams& params,
                              const TokenHistory& history);

 private:
  void allow_only(std::span<const float> logits, std::span<const std::int32_t> ids);
  void mask(std::int32_t id);
  void penalize(const SamplingParams& params, const TokenHistory& history);

  std::vector<float> edited_;
  std::vector<std::int32_t> masked_;
  /// [vocab] 1 + the count in the output for tokens of the history, else 0; zero between calls.
  std::vector<std::uint32_t> seen_;
};

}  // namespace troupe
