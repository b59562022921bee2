#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

/// A value added to a token's logit.
struct TokenBias {
  std::int32_t token = 0;
  float bias = 0.0F;

  friend bool operator==(const TokenBias&, const TokenBias&) = default;
  template <class Archive>
  void fields(Archive& archive) {
    archive(token, bias);
  }
};

/// How a sequence's next token is chosen. Defaults are vLLM's; a model's generation_config.json and
/// then the request override them.
struct SamplingParams {
  float temperature = 1.0F;  ///< >= 0; 0 is greedy
  std::int32_t top_k = 0;    ///< 0 (or -1 in requests): all
  float top_p = 1.0F;        ///< (0, 1]
  float min_p = 0.0F;        ///< [0, 1], relative to the largest probability
  std::uint64_t seed = 0;  ///< always set: the request's own, or derived from job seed + custom_id
  std::int32_t max_tokens = 16;
  bool ignore_eos = false;
  std::vector<std::int32_t> stop_token_ids;  ///< eos ids (unless ignore_eos) and the request's own
  std::int32_t logprobs = -1;         ///< -1: none; n: the chosen token's and the n best (0..)
  std::int32_t prompt_logprobs = -1;  ///< as logprobs, for prompt tokens 1.. (echo)
  std::uint32_t choice = 0;     ///< number of the answer to the prompt; part of the random counter
  std::int32_t min_tokens = 0;  ///< no stop token before this many are generated
  float repetition_penalty = 1.0F;                        ///< > 0; 1: none
  float frequency_penalty = 0.0F;                         ///< [-2, 2]
  float presence_penalty = 0.0F;                          ///< [-2, 2]
  std::vector<TokenBias> logit_bias = {};                 ///< each token once
  std::vector<std::int32_t> allowed_token_ids = {};       ///< empty: all
  std::vector<std::vector<std::int32_t>> bad_words = {};  ///< token sequences, none of them empty

  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
  template <class Archive>
  void fields(Archive& archive) {
    archive(temperature, top_k, top_p, min_p, seed, max_tokens, ignore_eos, stop_token_ids,
            logprobs, prompt_logprobs, choice, min_tokens, repetition_penalty, frequency_penalty,
            presence_penalty, logit_bias, allowed_token_ids, bad_words);
  }
};

/// A token's natural-log probability and the best alternatives, best first (raw: before penalties,
/// masks and temperature).
struct TokenLogprobs {
  float logprob = 0.0F;
  std::vector<std::int32_t> top_ids;
  std::vector<float> top_logprobs;
  std::int32_t rank = 0;  ///< 1 + the number of likelier tokens; 0: not known

  friend bool operator==(const TokenLogprobs&, const TokenLogprobs&) = default;
  template <class Archive>
  void fields(Archive& archive) {
    archive(logprob, top_ids, top_logprobs, rank);
  }
};

}  // namespace troupe
