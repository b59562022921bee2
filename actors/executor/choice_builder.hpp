#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/api/request.hpp"
#include "actors/executor/prepared_request.hpp"
#include "actors/scheduler/scheduler.hpp"
#include "models/text/detokenizer.hpp"
#include "models/text/tokenizer.hpp"

namespace troupe {

/// A choice being generated: collects the updates of one sequence and makes its Choice. The text is
/// built step by step only with stop strings.
class ChoiceBuilder {
 public:
  /// `form` and `tokenizer` outlive the builder. `tokenizer` may be null: then there is no text.
  /// With a tokenizer, the form has its detokenizer.
  ChoiceBuilder(const AnswerForm& form, std::int32_t min_tokens, const Tokenizer* tokenizer);

  /// Takes an update's tokens and scores; drops what follows the token that completes a stop
  /// string. `update.end` set: the choice has ended.
  void add(SequenceUpdate update);

  /// True once a stop string or the sequence's end came: then no more updates are taken.
  bool ended() const { return ended_; }

  /// Mean log-probability per token; 0 without tokens. Needs scores.
  double mean_logprob() const;

  /// Returns the Choice; call once.
  Choice finish();

 private:
  /// Appends the text of a token; true if that completes a stop string.
  bool completes_stop_string(std::int32_t token);

  const AnswerForm* form_;
  const Tokenizer* tokenizer_;
  std::size_t min_tokens_;
  std::vector<std::int32_t> tokens_;
  std::vector<TokenLogprobs> logprobs_;
  bool ended_ = false;
  bool by_stop_token_ = false;
  std::optional<std::size_t> stop_string_;  ///< index of the stop string that ended it

  std::optional<Detokenizer> detokenizer_;  ///< with stop strings only, a copy of the form's
  std::string text_;
  std::size_t searched_ =
      0;  ///< bytes of text_ that hold no stop string, or came before min_tokens
};

/// The text of the tokens that an answer shows, following the prompt. `form` has a detokenizer.
std::string text_of(const AnswerForm& form, std::span<const std::int32_t> shown);

/// Returns where an answer's `tokens` tokens begin in that text, in code points; tokens that are
/// not shown are at its end.
std::vector<std::int32_t> offsets_of(const AnswerForm& form, std::span<const std::int32_t> shown,
                                     std::size_t tokens);

/// Appends the bytes of `chosen[i]` and those of its alternatives, for each i of `scores`.
void append_bytes(const Tokenizer& tokenizer, std::span<const std::int32_t> chosen,
                  std::span<const TokenLogprobs> scores, std::vector<std::string>& bytes);

}  // namespace troupe
