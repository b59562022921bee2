#include "actors/executor/prompt_scores.hpp"

#include <span>
#include <utility>

#include "actors/executor/choice_builder.hpp"

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

void PromptScores::finish(const Tokenizer* tokenizer, Completion& completion) {
  if (tokenizer != nullptr) {
    const std::span<const std::int32_t> prompt(prompt_);
    completion.prompt_text = tokenizer->decode(prompt, false);
    if (!scores_.empty()) {
      completion.prompt_logprob_texts.push_back(tokenizer->decode(prompt.first(1), false));
      append_texts(*tokenizer, prompt.subspan(1), scores_, completion.prompt_logprob_texts);
    }
  }
  completion.prompt_ids = std::move(prompt_);
  completion.prompt_logprobs = std::move(scores_);
}

}  // namespace troupe
