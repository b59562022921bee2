#include "actors/executor/answer.hpp"

#include <span>
#include <utility>

#include "actors/executor/request_intake.hpp"

namespace troupe {
namespace {

/// Appends the texts of `chosen[i]` and its alternatives, in the order of Completion.
void append_texts(const Tokenizer& tokenizer, std::span<const std::int32_t> chosen,
                  std::span<const TokenLogprobs> scores, std::vector<std::string>& texts) {
  for (std::size_t i = 0; i < scores.size(); ++i) {
    texts.push_back(tokenizer.decode(chosen.subspan(i, 1), false));
    for (const std::int32_t id : scores[i].top_ids) {
      texts.push_back(tokenizer.decode(std::span(&id, 1), false));
    }
  }
}

}  // namespace

Answer::Answer(const SequenceSpec& spec)
    : request_(spec.request), prompt_(spec.prompt), echo_(spec.sampling.prompt_logprobs >= 0) {
  if (echo_) prompt_logprobs_.resize(prompt_.size() - 1);
}

void Answer::add(SequenceUpdate update) {
  tokens_.insert(tokens_.end(), update.tokens.begin(), update.tokens.end());
  for (auto& scores : update.logprobs) logprobs_.push_back(std::move(scores));
  std::size_t position = static_cast<std::size_t>(update.prompt_begin);
  for (auto& scores : update.prompt_logprobs) {
    if (position >= 1 && position <= prompt_logprobs_.size()) {
      prompt_logprobs_[position - 1] = std::move(scores);
    }
    ++position;
  }
}

Completion Answer::finish(SequenceEnd end, const Tokenizer* tokenizer) {
  if (end == SequenceEnd::failed) {
    return refuse(request_, "not_finite",
                  "the model's logits were not finite numbers for this request");
  }
  Completion completion;
  completion.id = request_;
  completion.finish_reason = end == SequenceEnd::stop ? FinishReason::stop : FinishReason::length;
  if (tokenizer != nullptr) {
    std::span<const std::int32_t> shown(tokens_);
    if (end == SequenceEnd::stop) shown = shown.first(shown.size() - 1);
    completion.text = tokenizer->decode(shown, true);
    completion.prompt_text = tokenizer->decode(prompt_, false);
    if (echo_) {
      completion.logprob_texts.push_back(tokenizer->decode(std::span(prompt_).first(1), false));
    }
    append_texts(*tokenizer, std::span(prompt_).subspan(1), prompt_logprobs_,
                 completion.logprob_texts);
    append_texts(*tokenizer, tokens_, logprobs_, completion.logprob_texts);
  }
  completion.prompt_ids = std::move(prompt_);
  completion.token_ids = std::move(tokens_);
  completion.logprobs = std::move(logprobs_);
  completion.prompt_logprobs = std::move(prompt_logprobs_);
  return completion;
}

}  // namespace troupe
