#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

/// How a request's next token is chosen. Defaults are vLLM's; a model's generation_config.json and
/// then the request itself override them.
struct SamplingParams {
  float temperature = 1.0F;  ///< >= 0; 0 is greedy
  std::int32_t top_k = 0;    ///< 0 (or -1 in requests): all
  float top_p = 1.0F;        ///< (0, 1]
  float min_p = 0.0F;        ///< [0, 1], of the largest probability
  std::uint64_t seed = 0;  ///< always set: the request's own, or derived from job seed + custom_id
  std::int32_t max_tokens = 16;
  bool ignore_eos = false;
  std::vector<std::int32_t> stop_token_ids;  ///< eos ids (unless ignore_eos) and the request's own
  std::int32_t logprobs = -1;         ///< -1: none; n: the chosen token's and the n best (0..20)
  std::int32_t prompt_logprobs = -1;  ///< as logprobs, for prompt tokens 1.. (echo)

  template <class Archive>
  void fields(Archive& archive) {
    archive(temperature, top_k, top_p, min_p, seed, max_tokens, ignore_eos, stop_token_ids,
            logprobs, prompt_logprobs);
  }
};

/// A token's natural-log probability and the best alternatives, best first (raw: before
/// temperature).
struct TokenLogprobs {
  float logprob = 0.0F;
  std::vector<std::int32_t> top_ids;
  std::vector<float> top_logprobs;

  template <class Archive>
  void fields(Archive& archive) {
    archive(logprob, top_ids, top_logprobs);
  }
};

}  // namespace troupe
