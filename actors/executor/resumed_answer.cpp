#include "actors/executor/resumed_answer.hpp"

#include <map>
#include <utility>

namespace troupe {

void resume(Answer& answer, std::vector<SequenceUpdate> progress, SequenceGroupSpec& spec) {
  const bool is_search = spec.beam_width > 0;
  std::map<std::int32_t, std::vector<std::int32_t>> living;
  if (is_search) {
    living[0];
    spec.begun = 1;
  }
  for (SequenceUpdate& update : progress) {
    const std::int32_t sequence = update.sequence;
    if (!is_search && !update.tokens.empty()) {
      while (spec.begun <= sequence) living[spec.begun++];
      auto& tokens = living[sequence];
      tokens.insert(tokens.end(), update.tokens.begin(), update.tokens.end());
    }
    Answer::Step step = answer.take(std::move(update));
    if (step.ended) living.erase(sequence);
    for (auto& beam : step.beams) living[spec.begun++] = std::move(beam);
  }
  for (auto& [sequence, tokens] : living) spec.resumed.push_back({sequence, std::move(tokens)});
}

}  // namespace troupe
