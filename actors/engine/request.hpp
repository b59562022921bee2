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

/// Numbers that a request's stop_token_ids, logit_bias (two each), allowed_token_ids and tokenised
/// bad_words may come to, so that the parameters of all sequences that a step starts fit into one
/// plan.
inline constexpr std::size_t max_sampling_numbers = 4096;

/// Answers to one prompt, and beams of a search, at most.
inline constexpr std::int32_t max_choices = 128;
inline constexpr std::int32_t max_beam_width = 32;

/// A request as the engine takes it: validated in shape, not yet rendered or tokenised. Optional
/// sampling fields that were absent are resolved by the engine from the model's generation_config.
struct Request {
  std::uint64_t id = 0;  ///< the caller's, unique among live requests
  PromptKind kind = PromptKind::text;
  std::string prompt;  ///< text, or the messages as JSON
  /// The variables of the chat template beside the messages, e.g. "tools": a JSON object, or "".
  std::string template_variables;
  std::vector<std::int32_t> prompt_ids;
  /// The prompt's last tokens alone, so many; -1: as many as leave room for max_tokens.
  std::optional<std::int32_t> truncate_prompt_tokens;
  /// The tokenizer puts its BOS and EOS around the prompt's text; absent: around a text, but not
  /// around messages, whose template writes them.
  std::optional<bool> add_special_tokens;

  std::optional<float> temperature;
  std::optional<std::int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  float frequency_penalty = 0.0F;
  float presence_penalty = 0.0F;
  std::vector<TokenBias> logit_bias;            ///< each token once
  std::vector<std::int32_t> allowed_token_ids;  ///< empty: all
  std::vector<std::string> bad_words;           ///< texts that are not to be generated, none empty
  std::uint64_t seed = 0;  ///< resolved by the caller: the request's own, or from job seed and name

  std::optional<std::int64_t> max_tokens;  ///< absent: what fits the context
  std::int32_t min_tokens = 0;             ///< neither stop tokens nor stop strings before so many
  bool ignore_eos = false;
  std::vector<std::int32_t> stop_token_ids;
  std::vector<std::string> stop;            ///< texts that end the answer, none empty
  bool include_stop_str_in_output = false;  ///< the text that ended it is part of the answer's
  bool skip_special_tokens = true;          ///< in the text

  std::int32_t n = 1;        ///< answers wanted; 1..max_choices
  std::int32_t best_of = 1;  ///< n..max_choices: so many are generated, the n likeliest are given
  /// The answers are the n best of a beam search of width best_of (1..max_beam_width), by
  /// log-probability / length^length_penalty.
  bool use_beam_search = false;
  float length_penalty = 1.0F;

  bool echo = false;                  ///< the prompt's text is wanted back
  std::int32_t logprobs = -1;         ///< as SamplingParams
  std::int32_t prompt_logprobs = -1;  ///< as SamplingParams
  std::int32_t priority = 0;          ///< lower goes first where the policy looks at it
  std::int32_t deadline_ms = 0;       ///< from its arrival at the engine, as priority; 0: none

  template <class Archive>
  void fields(Archive& archive) {
    archive(id, kind, prompt, template_variables, prompt_ids, truncate_prompt_tokens,
            add_special_tokens, temperature, top_k, top_p, min_p, repetition_penalty,
            frequency_penalty, presence_penalty, logit_bias, allowed_token_ids, bad_words, seed,
            max_tokens, min_tokens, ignore_eos, stop_token_ids, stop, include_stop_str_in_output,
            skip_special_tokens, n, best_of, use_beam_search, length_penalty, echo, logprobs,
            prompt_logprobs, priority, deadline_ms);
  }
};

enum class FinishReason : std::uint8_t { stop, length };

/// One of the answers to a request.
struct Choice {
  FinishReason finish_reason = FinishReason::stop;
  /// What ended it: the stop string, else the stop token if that is not the model's own end.
  std::string stop_string;
  std::optional<std::int32_t> stop_token;
  std::string text;
  std::vector<std::int32_t> token_ids;  ///< generated, to the one that ended it, inclusive
  std::vector<TokenLogprobs> logprobs;  ///< one per generated token if asked for
  /// The bytes of each token in `logprobs`, then those of its alternatives. A token may be part of
  /// a character.
  std::vector<std::string> logprob_bytes;
  /// The place where each token in `logprobs` begins in `text`, in code points.
  std::vector<std::int32_t> text_offsets;

  template <class Archive>
  void fields(Archive& archive) {
    archive(finish_reason, stop_string, stop_token, text, token_ids, logprobs, logprob_bytes,
            text_offsets);
  }
};

/// The engine's answer to one request.
struct Completion {
  std::uint64_t id = 0;
  std::string error_code;  ///< e.g. "context_length_exceeded"; empty: it was answered
  std::string error;       ///< what was wrong with the request
  std::vector<Choice> choices;
  /// For echo: the request's own text, or what the given token ids say.
  std::string prompt_text;
  std::vector<std::int32_t> prompt_ids;
  std::vector<TokenLogprobs> prompt_logprobs;  ///< one per prompt token but the first if asked for
  /// The bytes of the first prompt token, then as Choice::logprob_bytes; empty without scores.
  std::vector<std::string> prompt_logprob_bytes;
  std::vector<std::int32_t>
      prompt_text_offsets;  ///< of all prompt tokens, in prompt_text, for echo
  /// From the executor's taking the request in to its first and to its last token; 0 without one.
  std::uint64_t first_token_us = 0;
  std::uint64_t last_token_us = 0;

  bool failed() const { return !error_code.empty(); }

  template <class Archive>
  void fields(Archive& archive) {
    archive(id, error_code, error, choices, prompt_text, prompt_ids, prompt_logprobs,
            prompt_logprob_bytes, prompt_text_offsets, first_token_us, last_token_us);
  }
};

}  // namespace troupe
