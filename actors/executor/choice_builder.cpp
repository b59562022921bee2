#include "actors/executor/choice_builder.hpp"

#include <string_view>
#include <utility>

#include "actors/executor/stop_strings.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe {
namespace {

/// The text that is held back but would be shown if the answer ended now: bytes of a run that
/// already form characters. Empty if they do not.
std::string held_back(Detokenizer detokenizer) {
  constexpr std::string_view replacement_character = "\uFFFD";
  std::string tail = detokenizer.flush();
  return tail.find(replacement_character) == tail.npos ? tail : "";
}

}  // namespace

ChoiceBuilder::ChoiceBuilder(const AnswerForm& form, std::int32_t min_tokens,
                             const Tokenizer* tokenizer)
    : form_(&form), tokenizer_(tokenizer), min_tokens_(static_cast<std::size_t>(min_tokens)) {
  if (tokenizer_ != nullptr && !form.stop.empty()) detokenizer_ = form.detokenizer;
}

void ChoiceBuilder::add(SequenceUpdate update) {
  if (ended_) return;
  const bool by_stop_token = update.end == SequenceEnd::stop;
  for (std::size_t i = 0; i < update.tokens.size() && !ended_; ++i) {
    tokens_.push_back(update.tokens[i]);
    if (i < update.logprobs.size()) logprobs_.push_back(std::move(update.logprobs[i]));
    const bool hidden =
        by_stop_token && i + 1 == update.tokens.size() && !form_->include_stop_str_in_output;
    if (detokenizer_ && !hidden) ended_ = completes_stop_string(update.tokens[i]);
  }
  if (ended_ || !update.end) return;
  ended_ = true;
  by_stop_token_ = by_stop_token;
}

bool ChoiceBuilder::completes_stop_string(std::int32_t token) {
  text_ += detokenizer_->push(token);
  if (tokens_.size() <= min_tokens_) {
    searched_ = text_.size();
    return false;
  }
  const std::size_t final_bytes = text_.size();
  text_ += held_back(*detokenizer_);
  const auto match = find_stop_string(form_->stop, text_, searched_);
  if (match) {
    text_.resize(form_->include_stop_str_in_output ? match->end : match->begin);
    stop_string_ = match->string;
    return true;
  }
  text_.resize(final_bytes);
  searched_ = final_bytes;
  return false;
}

double ChoiceBuilder::mean_logprob() const {
  double sum = 0;
  for (const TokenLogprobs& scores : logprobs_) sum += static_cast<double>(scores.logprob);
  return logprobs_.empty() ? 0 : sum / static_cast<double>(logprobs_.size());
}

Choice ChoiceBuilder::finish() {
  Choice choice;
  const bool stopped = stop_string_ || by_stop_token_;
  choice.finish_reason = stopped ? FinishReason::stop : FinishReason::length;
  if (stop_string_) {
    choice.stop_string = form_->stop[*stop_string_];
  } else if (by_stop_token_ && tokens_.back() != form_->own_end) {
    choice.stop_token = tokens_.back();
  }
  std::span<const std::int32_t> shown(tokens_);
  if (by_stop_token_ && !form_->include_stop_str_in_output) shown = shown.first(shown.size() - 1);
  if (detokenizer_) {
    if (!stop_string_) text_ += detokenizer_->flush();
    choice.text = std::move(text_);
  } else if (tokenizer_ != nullptr) {
    choice.text = text_of(*form_, shown);
  }
  if (form_->logprobs >= 0) {
    if (tokenizer_ != nullptr) {
      choice.text_offsets = offsets_of(*form_, shown, tokens_.size());
      append_bytes(*tokenizer_, tokens_, logprobs_, choice.logprob_bytes);
    }
    choice.logprobs = std::move(logprobs_);
  }
  choice.token_ids = std::move(tokens_);
  return choice;
}

std::string text_of(const AnswerForm& form, std::span<const std::int32_t> shown) {
  Detokenizer detokenizer = *form.detokenizer;
  std::string text;
  for (const std::int32_t id : shown) text += detokenizer.push(id);
  return text += detokenizer.flush();
}

std::vector<std::int32_t> offsets_of(const AnswerForm& form, std::span<const std::int32_t> shown,
                                     std::size_t tokens) {
  std::vector<std::int32_t> offsets = form.detokenizer->places_of(shown);
  if (offsets.size() < tokens) {
    const auto end = text::count_code_points(text_of(form, shown));
    offsets.resize(tokens, static_cast<std::int32_t>(end));
  }
  return offsets;
}

void append_bytes(const Tokenizer& tokenizer, std::span<const std::int32_t> chosen,
                  std::span<const TokenLogprobs> scores, std::vector<std::string>& bytes) {
  for (std::size_t i = 0; i < scores.size(); ++i) {
    bytes.emplace_back(tokenizer.bytes_of(chosen[i]));
    for (const std::int32_t id : scores[i].top_ids) bytes.emplace_back(tokenizer.bytes_of(id));
  }
}

}  // namespace troupe
