#include "actors/executor/beam_answer.hpp"

#include <span>
#include <utility>

#include "actors/executor/choice_builder.hpp"

namespace troupe {

BeamAnswer::BeamAnswer(PreparedRequest request, const Tokenizer* tokenizer)
    : id_(request.id),
      seed_(request.sampling.seed),
      prompt_logprobs_(request.sampling.prompt_logprobs),
      priority_(request.priority),
      deadline_us_(request.deadline_us),
      form_(std::move(request.form)),
      tokenizer_(tokenizer),
      prompt_(std::move(request.prompt), prompt_logprobs_ >= 0),
      search_({.width = form_.beam->width,
               .length_penalty = form_.beam->length_penalty,
               .max_tokens = request.sampling.max_tokens,
               .prompt_tokens = prompt_.prompt().size(),
               .eos_ids = form_.eos_ids,
               .logprobs = form_.logprobs}) {}

std::vector<SequenceSpec> BeamAnswer::begin() { return step(); }

std::vector<SequenceSpec> BeamAnswer::step() {
  missing_ = search_.beams().size();
  proposed_.assign(missing_, {});
  std::vector<SequenceSpec> sequences;
  for (std::size_t beam = 0; beam < missing_; ++beam) sequences.push_back(sequence(beam));
  return sequences;
}

SequenceSpec BeamAnswer::sequence(std::size_t beam) const {
  const std::vector<std::int32_t>& tokens = search_.beams()[beam].tokens;
  SequenceSpec spec;
  spec.prompt = prompt_.prompt();
  spec.prompt.insert(spec.prompt.end(), tokens.begin(), tokens.end());
  spec.priority = priority_;
  spec.deadline_us = deadline_us_;
  spec.sampling.temperature = 0.0F;  // which token it generates does not matter
  spec.sampling.seed = seed_;
  spec.sampling.max_tokens = 1;
  spec.sampling.ignore_eos = true;
  spec.sampling.logprobs = search_.proposals();
  if (tokens.empty()) spec.sampling.prompt_logprobs = prompt_logprobs_;
  return spec;
}

Answer::Step BeamAnswer::take(std::size_t place, SequenceUpdate update) {
  const std::size_t beam = place - first_place_;
  if (search_.beams().front().tokens.empty()) prompt_.add(update);
  if (!update.end) return {};
  if (!update.logprobs.empty()) proposed_[beam] = std::move(update.logprobs.front());
  Step outcome{.ended = true, .next = {}};
  if (--missing_ > 0) return outcome;
  first_place_ += proposed_.size();
  search_.advance(proposed_);
  outcome.next = step();
  return outcome;
}

SequenceSpec BeamAnswer::again(std::size_t place) { return sequence(place - first_place_); }

Completion BeamAnswer::finish() {
  Completion completion;
  completion.id = id_;
  for (Beam& beam : search_.best(static_cast<std::size_t>(form_.n))) {
    completion.choices.push_back(choice(std::move(beam)));
  }
  prompt_.finish(tokenizer_, completion);
  return completion;
}

Choice BeamAnswer::choice(Beam beam) const {
  Choice choice;
  choice.finish_reason = beam.ended ? FinishReason::stop : FinishReason::length;
  if (beam.ended) choice.stop_token = beam.tokens.back();
  if (tokenizer_ != nullptr) {
    std::span<const std::int32_t> shown(beam.tokens);
    if (beam.ended && !form_.include_stop_str_in_output) shown = shown.first(shown.size() - 1);
    choice.text = tokenizer_->decode(shown, form_.skip_special_tokens);
    append_texts(*tokenizer_, beam.tokens, beam.logprobs, choice.logprob_texts);
  }
  choice.token_ids = std::move(beam.tokens);
  choice.logprobs = std::move(beam.logprobs);
  return choice;
}

}  // namespace troupe
