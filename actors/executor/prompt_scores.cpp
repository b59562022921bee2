#include "actors/executor/prompt_scores.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "actors/executor/choice_builder.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe {

PromptScores::PromptScores(std::vector<std::int32_t> prompt, bool scored)
    : prompt_(std::move(prompt)) {
  if (scored) scores_.resize(prompt_.size() - 1);
}

void PromptScores::add(SequenceUpdate& update) {
  auto position = static_cast<std::size_t>(update.prompt_begin);
  for (TokenLogprobs& scores : update.prompt_logprobs) {
    if (position >= 1 && position <= scores_.size()) scores_[position - 1] = std::move(scores);
    ++position;
  }
}

void PromptScores::finish(AnswerForm& form, const Tokenizer* tokenizer, Completion& completion) {
  const std::span<const std::int32_t> prompt(prompt_);
  if (tokenizer != nullptr && !scores_.empty()) {
    completion.prompt_logprob_bytes.emplace_back(tokenizer->bytes_of(prompt_.front()));
    append_bytes(*tokenizer, prompt.subspan(1), scores_, completion.prompt_logprob_bytes);
  }
  if (form.echo) {
    completion.prompt_text_offsets.assign(form.tokens_before_text, 0);
    // A normaliser may have made the text longer than the input.
    const auto end = static_cast<std::int32_t>(text::count_code_points(*form.echo));
    const Detokenizer beginning(*tokenizer, false);
    for (const std::int32_t place : beginning.places_of(prompt.subspan(form.tokens_before_text)))
      completion.prompt_text_offsets.push_back(std::min(place, end));
    completion.prompt_text = *std::move(form.echo);
  }
  completion.prompt_ids = std::move(prompt_);
  completion.prompt_logprobs = std::move(scores_);
}

}  // namespace troupe
