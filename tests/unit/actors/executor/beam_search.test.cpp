#include "actors/executor/beam_search.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace troupe {
namespace {

using Ids = std::vector<std::int32_t>;

/// A language model of few tokens: the distribution is a fixed function of the earlier tokens.
class ToyModel {
 public:
  ToyModel(std::int32_t vocab, std::uint32_t seed) : vocab_(vocab), seed_(seed) {}

  std::vector<double> logprobs(const Ids& tokens) const {
    std::seed_seq sequence(tokens.begin(), tokens.end());
    std::vector<std::uint32_t> key(1);
    sequence.generate(key.begin(), key.end());
    std::mt19937 random(key[0] ^ seed_);
    std::vector<double> values(static_cast<std::size_t>(vocab_));
    double sum = 0;
    for (double& value : values) {
      value = static_cast<double>(random() % 100000) / 20000;
      sum += std::exp(value);
    }
    for (double& value : values) value = static_cast<float>(value - std::log(sum));
    return values;
  }

  TokenLogprobs best(const Ids& tokens, std::size_t count) const {
    const std::vector<double> values = logprobs(tokens);
    Ids order(values.size());
    std::iota(order.begin(), order.end(), 0);
    const auto value = [&](std::int32_t id) { return values[static_cast<std::size_t>(id)]; };
    std::ranges::stable_sort(order, std::ranges::greater(), value);
    order.resize(std::min(count, order.size()));
    TokenLogprobs found;
    for (const std::int32_t id : order) {
      found.top_ids.push_back(id);
      found.top_logprobs.push_back(static_cast<float>(value(id)));
    }
    return found;
  }

 private:
  std::int32_t vocab_;
  std::uint32_t seed_;
};

std::vector<Beam> run(BeamSearch& search, const ToyModel& model) {
  while (!search.beams().empty()) {
    std::vector<TokenLogprobs> proposed;
    for (const Beam& beam : search.beams()) {
      proposed.push_back(model.best(beam.tokens, static_cast<std::size_t>(search.proposals())));
    }
    search.advance(proposed);
  }
  return search.best(100);
}

double score_of(double logprob, std::size_t length, float penalty) {
  return logprob / std::pow(static_cast<double>(length), static_cast<double>(penalty));
}

/// Enumerates every possible answer: of `max_tokens` tokens, or ending at the first EOS.
void enumerate(const ToyModel& model, const BeamSearchSpec& spec, Ids& tokens, double logprob,
               std::vector<std::pair<double, Ids>>& answers) {
  const bool ended =
      !tokens.empty() && std::ranges::find(spec.eos_ids, tokens.back()) != spec.eos_ids.end();
  if (ended || std::ssize(tokens) == spec.max_tokens) {
    const std::size_t length = spec.prompt_tokens + tokens.size() - (ended ? 1 : 0);
    answers.emplace_back(score_of(logprob, length, spec.length_penalty), tokens);
    return;
  }
  const auto values = model.logprobs(tokens);
  for (std::size_t id = 0; id < values.size(); ++id) {
    tokens.push_back(static_cast<std::int32_t>(id));
    enumerate(model, spec, tokens, logprob + values[id], answers);
    tokens.pop_back();
  }
}

TEST(BeamSearch, wide_enough_finds_the_best_answers_that_there_are) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const ToyModel model(5, seed);
    BeamSearchSpec spec{.width = 125, .length_penalty = 0.5F + 0.1F * static_cast<float>(seed)};
    spec.max_tokens = 4;
    spec.prompt_tokens = 3;
    spec.eos_ids = {2};
    std::vector<std::pair<double, Ids>> answers;
    Ids tokens;
    enumerate(model, spec, tokens, 0.0, answers);
    std::ranges::sort(answers, std::ranges::greater());
    BeamSearch search(spec);
    const auto found = run(search, model);
    ASSERT_GE(found.size(), 5U);
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(found[i].tokens, answers[i].second) << "answer " << i << ", seed " << seed;
    }
  }
}

/// A naive implementation of the definition: scores and sorts whole beams in every step.
std::vector<Ids> reference(const ToyModel& model, const BeamSearchSpec& spec) {
  struct Plain {
    Ids tokens;
    double logprob = 0;
    bool ended = false;
  };
  const auto score = [&](const Plain& beam) {
    return score_of(beam.logprob, spec.prompt_tokens + beam.tokens.size() - (beam.ended ? 1 : 0),
                    spec.length_penalty);
  };
  const auto better = [&](const Plain& a, const Plain& b) { return score(a) > score(b); };
  std::vector<Plain> beams(1);
  std::vector<Plain> complete;
  for (std::int32_t step = 0; step < spec.max_tokens; ++step) {
    std::vector<Plain> next;
    for (const Plain& beam : beams) {
      const auto best = model.best(beam.tokens, 2 * static_cast<std::size_t>(spec.width));
      for (std::size_t k = 0; k < best.top_ids.size(); ++k) {
        Plain longer = beam;
        longer.tokens.push_back(best.top_ids[k]);
        longer.logprob += static_cast<double>(best.top_logprobs[k]);
        longer.ended = std::ranges::find(spec.eos_ids, best.top_ids[k]) != spec.eos_ids.end();
        (longer.ended ? complete : next).push_back(longer);
      }
    }
    std::ranges::stable_sort(next, better);
    if (std::ssize(next) > spec.width) next.resize(static_cast<std::size_t>(spec.width));
    beams = next;
  }
  complete.insert(complete.end(), beams.begin(), beams.end());
  std::ranges::stable_sort(complete, better);
  std::vector<Ids> found;
  for (std::size_t i = 0; i < complete.size() && std::ssize(found) < spec.width; ++i) {
    found.push_back(complete[i].tokens);
  }
  return found;
}

TEST(BeamSearch, of_any_width_keeps_and_completes_beams_by_the_definition) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const ToyModel model(11, seed);
    BeamSearchSpec spec;
    spec.width = 1 + static_cast<std::int32_t>(seed % 4);
    spec.max_tokens = 1 + static_cast<std::int32_t>(seed % 7);
    spec.prompt_tokens = 1 + seed % 3;
    spec.length_penalty = static_cast<float>(seed % 5) * 0.5F;
    if (seed % 3 != 0) spec.eos_ids = {4, 7};
    BeamSearch search(spec);
    std::vector<Ids> found;
    for (const Beam& beam : run(search, model)) found.push_back(beam.tokens);
    if (std::ssize(found) > spec.width) found.resize(static_cast<std::size_t>(spec.width));
    EXPECT_EQ(found, reference(model, spec)) << "seed " << seed;
  }
}

TEST(BeamSearch, of_width_one_without_an_end_is_greedy) {
  const ToyModel model(9, 3);
  BeamSearchSpec spec;
  spec.max_tokens = 12;
  BeamSearch search(spec);
  Ids greedy;
  for (int i = 0; i < 12; ++i) greedy.push_back(model.best(greedy, 1).top_ids.front());
  EXPECT_EQ(run(search, model).front().tokens, greedy);
}

TEST(BeamSearch, is_done_when_every_proposal_ends) {
  BeamSearchSpec spec;
  spec.max_tokens = 50;
  spec.eos_ids = {0, 1};
  BeamSearch search(spec);
  search.advance(std::vector<TokenLogprobs>{{0, {1, 0}, {-0.25F, -2.0F}}});
  EXPECT_TRUE(search.beams().empty());
  ASSERT_EQ(search.best(5).size(), 1U) << "no more than the width is kept";
  EXPECT_EQ(search.best(5)[0].tokens, Ids{1});
  EXPECT_TRUE(search.best(5)[0].ended);
}

TEST(BeamSearch, keeps_the_scores_of_its_tokens_if_asked) {
  BeamSearchSpec spec;
  spec.max_tokens = 2;
  spec.logprobs = 1;
  BeamSearch search(spec);
  search.advance(std::vector<TokenLogprobs>{{0, {3, 5}, {-0.5F, -1.0F}}});
  search.advance(std::vector<TokenLogprobs>{{0, {4, 6}, {-0.25F, -3.0F}}});
  const auto best = search.best(1);
  ASSERT_EQ(best.size(), 1U);
  EXPECT_EQ(best[0].logprob, -0.75);
  EXPECT_EQ(best[0].logprobs,
            (std::vector<TokenLogprobs>{{-0.5F, {3}, {-0.5F}, 1}, {-0.25F, {4}, {-0.25F}, 1}}));
}

}  // namespace
}  // namespace troupe
