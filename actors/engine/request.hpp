#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/sampler/sampling_params.hpp"

namespace troupe {

/// What a request gives the model to read; exactly one of the three.
enum class PromptKind : std::uint8_t {
  messages,  ///< a JSON array of chat messages, rendered by the model's chat template
  text,
  token_ids,
};

/// So that the parameters of all sequences that a step starts fit into one plan.
inline constexpr std::size_t max_stop_token_ids = 1024;

/// A request as the engine takes it: validated in shape, not yet rendered or tokenised. Optional
/// sampling fields that were absent are resolved by the engine from the model's generation_config.
struct Request {
  std::uint64_t id = 0;  ///< the caller's, unique among live requests
  PromptKind kind = PromptKind::text;
  std::string prompt;  ///< text, or the messages as JSON
  std::vector<std::int32_t> prompt_ids;

  std::optional<float> temperature;
  std::optional<std::int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::uint64_t seed = 0;  ///< resolved by the caller: the request's own, or from job seed and name
  std::optional<std::int64_t> max_tokens;  ///< absent: what fits the context
  bool ignore_eos = false;
  std::vector<std::int32_t> stop_token_ids;  ///< at most max_stop_token_ids
  std::int32_t logprobs = -1;                ///< as SamplingParams
  std::int32_t prompt_logprobs = -1;         ///< as SamplingParams (echo with logprobs)

  template <class Archive>
  void fields(Archive& archive) {
    archive(id, kind, prompt, prompt_ids, temperature, top_k, top_p, min_p, seed, max_tokens,
            ignore_eos, stop_token_ids, logprobs, prompt_logprobs);
  }
};

enum class FinishReason : std::uint8_t { stop, length, error };

/// The engine's answer to one request.
struct Completion {
  std::uint64_t id = 0;
  FinishReason finish_reason = FinishReason::stop;
  std::string error;        ///< for FinishReason::error: what was wrong with the request
  std::string error_code;   ///< e.g. "context_length_exceeded"
  std::string text;         ///< generated text, special tokens skipped
  std::string prompt_text;  ///< decoded prompt, for echo
  std::vector<std::int32_t> prompt_ids;
  std::vector<std::int32_t> token_ids;         ///< generated, a stop token included
  std::vector<TokenLogprobs> logprobs;         ///< one per generated token if asked for
  std::vector<TokenLogprobs> prompt_logprobs;  ///< one per prompt token but the first if asked for
  /// Text of each token that occurs in the logprobs, in their order (chosen first, then its
  /// alternatives), generated tokens after prompt tokens.
  std::vector<std::string> logprob_texts;

  template <class Archive>
  void fields(Archive& archive) {
    archive(id, finish_reason, error, error_code, text, prompt_text, prompt_ids, token_ids,
            logprobs, prompt_logprobs, logprob_texts);
  }
};

}  // namespace troupe
