#include "actors/executor/beam_search.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <utility>

namespace troupe {

BeamSearch::BeamSearch(BeamSearchSpec spec) : spec_(std::move(spec)), beams_(1) {}

double BeamSearch::score(const Beam& beam) const {
  const std::size_t tokens = spec_.prompt_tokens + beam.tokens.size() - (beam.ended ? 1 : 0);
  return beam.logprob /
         std::pow(static_cast<double>(tokens), static_cast<double>(spec_.length_penalty));
}

void BeamSearch::sort_and_cut(std::vector<Beam>& beams, std::size_t count) const {
  std::stable_sort(beams.begin(), beams.end(),
                   [this](const Beam& a, const Beam& b) { return score(a) > score(b); });
  if (beams.size() > count) beams.resize(count);
}

Beam BeamSearch::extend(const Candidate& candidate, const TokenLogprobs& proposed,
                        bool ended) const {
  Beam longer = beams_[candidate.beam];
  longer.tokens.push_back(proposed.top_ids[candidate.k]);
  longer.logprob = candidate.logprob;
  longer.ended = ended;
  if (spec_.logprobs < 0) return longer;
  const auto kept = std::min(static_cast<std::size_t>(spec_.logprobs), proposed.top_ids.size());
  const auto count = static_cast<std::ptrdiff_t>(kept);
  TokenLogprobs scores;
  scores.logprob = proposed.top_logprobs[candidate.k];
  scores.rank = static_cast<std::int32_t>(candidate.k) + 1;
  scores.top_ids.assign(proposed.top_ids.begin(), proposed.top_ids.begin() + count);
  scores.top_logprobs.assign(proposed.top_logprobs.begin(), proposed.top_logprobs.begin() + count);
  longer.logprobs.push_back(std::move(scores));
  return longer;
}

void BeamSearch::advance(std::span<const TokenLogprobs> proposed) {
  std::vector<Candidate> alive;
  for (std::size_t i = 0; i < beams_.size(); ++i) {
    const TokenLogprobs& best = proposed[i];
    for (std::size_t k = 0; k < best.top_ids.size(); ++k) {
      const Candidate candidate{i, k,
                                beams_[i].logprob + static_cast<double>(best.top_logprobs[k])};
      const bool ended = std::ranges::find(spec_.eos_ids, best.top_ids[k]) != spec_.eos_ids.end();
      if (ended) {
        complete_.push_back(extend(candidate, best, true));
      } else {
        alive.push_back(candidate);
      }
    }
  }
  // All candidates have the same length, so the log-probability alone orders them.
  std::ranges::stable_sort(alive, std::ranges::greater(), &Candidate::logprob);
  const auto width = static_cast<std::size_t>(spec_.width);
  if (alive.size() > width) alive.resize(width);
  std::vector<Beam> longer;
  for (const Candidate& candidate : alive) {
    longer.push_back(extend(candidate, proposed[candidate.beam], false));
  }
  beams_ = std::move(longer);
  // No more can be asked for, and no later step moves these up.
  sort_and_cut(complete_, width);
  if (++steps_ < spec_.max_tokens) return;
  complete_.insert(complete_.end(), std::make_move_iterator(beams_.begin()),
                   std::make_move_iterator(beams_.end()));
  beams_.clear();
}

std::vector<Beam> BeamSearch::best(std::size_t count) const {
  std::vector<Beam> found = complete_;
  sort_and_cut(found, count);
  return found;
}

}  // namespace troupe
