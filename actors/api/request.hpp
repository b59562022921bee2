#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/sampler/sampling_params.hpp"

namespace troupe {

/// The form of a request's prompt; exactly one of the three.
enum class PromptKind : std::uint8_t {
  messages,  ///< a JSON array of chat messages, rendered by the model's chat template
  text,
  token_ids,
};

/// The most numbers in a request's stop_token_ids, logit_bias (two each), allowed_token_ids and
/// tokenised bad_words together, so that the parameters of all sequences that a step starts fit one
/// plan.
inline constexpr std::size_t max_sampling_numbers = 4096;

/// The most answers to one prompt, and beams of a search.
inline constexpr std::int32_t max_choices = 128;
inline constexpr std::int32_t max_beam_width = 32;

/// A request as the engine takes it: validated in form, not yet rendered or tokenised. The engine
/// resolves absent optional sampling fields from the model's generation_config.
struct Request {
  std::uint64_t id = 0;  ///< the caller's, unique among live requests
  PromptKind kind = PromptKind::text;
  std::string prompt;  ///< text, or the messages as JSON
  /// Variables of the chat template besides the messages, e.g. "tools": a JSON object, or "".
  std::string template_variables;
  std::vector<std::int32_t> prompt_ids;
  /// Keeps only this many last tokens of the prompt; -1: as many as leave room for max_tokens.
  std::optional<std::int32_t> truncate_prompt_tokens;
  /// True if the tokenizer puts its BOS and EOS around the prompt's text; absent: for a text, but
  /// not for messages, whose template writes them.
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
  std::vector<std::string> bad_words;           ///< texts that must not be generated, none empty
  std::uint64_t seed = 0;  ///< resolved by the caller: the request's own, or derived from job seed
                           ///< and name

  std::optional<std::int64_t> max_tokens;  ///< absent: what fits the context
  std::int32_t min_tokens = 0;             ///< no stop tokens or stop strings before this many
  bool ignore_eos = false;
  std::vector<std::int32_t> stop_token_ids;
  std::vector<std::string> stop;            ///< texts that end the answer, none empty
  bool include_stop_str_in_output = false;  ///< the stop string that ended it is part of the
                                            ///< answer's text
  bool skip_special_tokens = true;          ///< in the text

  std::int32_t n = 1;        ///< number of answers; 1..max_choices
  std::int32_t best_of = 1;  ///< n..max_choices: this many are generated, the n likeliest are
                             ///< returned
  /// The answers are the n best of a beam search of width best_of (1..max_beam_width), by
  /// log-probability / length^length_penalty.
  bool use_beam_search = false;
  float length_penalty = 1.0F;

  bool echo = false;                  ///< return the prompt's text, too
  std::int32_t logprobs = -1;         ///< see SamplingParams
  std::int32_t prompt_logprobs = -1;  ///< see SamplingParams
  std::int32_t priority = 0;          ///< lower goes first, if the policy uses it
  std::int32_t deadline_ms = 0;       ///< from its arrival at the engine, if the policy uses it; 0:
                                      ///< none

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
  /// The stop string that ended it, else the stop token unless that is the model's own EOS.
  std::string stop_string;
  std::optional<std::int32_t> stop_token;
  std::string text;
  std::vector<std::int32_t> token_ids;  ///< generated, up to and including the one that ended it
  std::vector<TokenLogprobs> logprobs;  ///< one per generated token if asked for
  /// The bytes of each token in `logprobs`, each followed by those of its alternatives. A token may
  /// be part of a character.
  std::vector<std::string> logprob_bytes;
  /// The beginning of each token of `logprobs` in `text`, in code points.
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
  std::string error_code;  ///< e.g. "context_length_exceeded"; empty: answered
  std::string error;       ///< what was wrong with the request
  std::vector<Choice> choices;
  /// For echo: the request's own text, or the decoded token ids.
  std::string prompt_text;
  std::vector<std::int32_t> prompt_ids;
  std::vector<TokenLogprobs> prompt_logprobs;  ///< one per prompt token but the first if asked for
  /// The bytes of the first prompt token, then as in Choice::logprob_bytes; empty without scores.
  std::vector<std::string> prompt_logprob_bytes;
  std::vector<std::int32_t>
      prompt_text_offsets;  ///< of all prompt tokens, in prompt_text, for echo
  /// From the executor's receipt of the request to its first and to its last token; 0 without one.
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
