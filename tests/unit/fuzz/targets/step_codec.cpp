#include "actors/step/step_codec.hpp"

#include <cstring>

#include "tests/support/require.hpp"
#include "tests/unit/fuzz/targets/mutator.hpp"
#include "tests/unit/fuzz/targets/targets.hpp"

namespace troupe::fuzz {
namespace {

StepPlan some_plan(Mutator& mutator) {
  StepPlan plan;
  plan.step = mutator.below(100);
  plan.epoch = 1;
  for (std::uint32_t i = 0; i < mutator.below(5); ++i) plan.released.push_back(i);
  for (std::uint32_t i = 0; i < mutator.below(5); ++i) {
    NewSequence sequence;
    sequence.id = i;
    for (std::size_t t = 0; t < mutator.below(40); ++t) {
      sequence.tokens.push_back(static_cast<std::int32_t>(mutator.below(4096)));
    }
    sequence.sampling.stop_token_ids = {1, 2};
    plan.started.push_back(std::move(sequence));
    SequenceStep step{.id = i, .tokens = 3, .new_blocks = {4, 5}, .sample = mutator.one_in(2)};
    plan.steps.push_back(std::move(step));
  }
  return plan;
}

StepResult some_result(Mutator& mutator) {
  StepResult result;
  for (std::uint32_t i = 0; i < mutator.below(6); ++i) {
    SequenceResult sequence;
    sequence.id = i;
    sequence.tokens = {7};
    TokenLogprobs scores;
    scores.logprob = -1;
    scores.top_ids = {1, 2};
    scores.top_logprobs = {-0.5F, -1.5F};
    sequence.logprobs = {scores};
    sequence.prompt_logprobs = {scores, scores};
    result.results.push_back(std::move(sequence));
  }
  return result;
}

/// Messages are words of 8 bytes, with counts and offsets in some of their bits.
void change_word(std::string& bytes, Mutator& mutator) {
  if (bytes.size() < 8) return;
  const std::size_t at = mutator.below(bytes.size() / 8) * 8;
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data() + at, 8);
  const std::uint64_t change = std::uint64_t{1} << mutator.below(64);
  word = mutator.one_in(2) ? word + change : word ^ change;
  if (mutator.one_in(8)) word = ~std::uint64_t{0};
  std::memcpy(bytes.data() + at, &word, 8);
}

template <class T>
std::string encoded(const T& value) {
  StepEncoder encoder;
  const auto bytes = encoder.encode(value);
  EXPECT_TRUE(bytes.ok());
  return {reinterpret_cast<const char*>(bytes->data()), bytes->size()};
}

}  // namespace

void changed_plans(Effort effort) {
  std::size_t taken = 0;
  for_seeds(effort, [&](std::uint64_t seed) {
    Mutator mutator(seed);
    const bool is_plan = mutator.one_in(2);
    std::string bytes = is_plan ? encoded(some_plan(mutator)) : encoded(some_result(mutator));
    for (std::size_t i = 0, changes = 1 + mutator.below(4); i < changes; ++i) {
      change_word(bytes, mutator);
    }
    if (mutator.one_in(4)) bytes = mutator.bytes(bytes);
    const auto span = std::as_bytes(std::span(bytes));
    // Either decoder must cope with either message.
    taken += decode_plan(span).ok() ? 1 : 0;
    taken += decode_result(span).ok() ? 1 : 0;
  });
  EXPECT_GT(taken, 0U);
}

}  // namespace troupe::fuzz
