#include "actors/executor/request_tracker.hpp"

#include <gtest/gtest.h>

#include "tests/support/source_path.hpp"

namespace troupe {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr RequestTracker::Clock::time_point now{};

PreparedRequest request_of(std::uint64_t id, std::int32_t n, std::int32_t best_of) {
  PreparedRequest request;
  request.id = id;
  request.prompt = {10, 11, 12};
  request.sampling.seed = 77;
  request.sampling.max_tokens = 4;
  request.priority = 3;
  request.form.n = n;
  request.form.best_of = best_of;
  return request;
}

PreparedRequest beam_of(std::uint64_t id, std::int32_t width, std::int32_t n) {
  PreparedRequest request = request_of(id, n, width);
  request.sampling.max_tokens = 2;
  request.form.beam = BeamParams{width, 1.0F};
  return request;
}

SequenceUpdate update_of(std::uint64_t request, std::int32_t sequence, Ids tokens, float logprob,
                         std::optional<SequenceEnd> end) {
  SequenceUpdate update;
  update.request = request;
  update.sequence = sequence;
  for (std::size_t i = 0; i < tokens.size(); ++i) update.logprobs.push_back({logprob, {}, {}, 1});
  update.tokens = std::move(tokens);
  update.end = end;
  return update;
}

SequenceUpdate proposal(std::uint64_t request, std::int32_t beam, Ids ids,
                        std::vector<float> logprobs) {
  SequenceUpdate update =
      update_of(request, beam, {ids.front()}, logprobs.front(), SequenceEnd::length);
  update.logprobs.front() = {logprobs.front(), ids, logprobs, 1};
  return update;
}

TEST(RequestTracker, asks_for_all_choices_of_a_request_as_one_group) {
  RequestTracker tracker(nullptr);
  PreparedRequest request = request_of(5, 3, 3);
  request.sampling.prompt_logprobs = 2;
  const SequenceGroupSpec asked = tracker.begin(1, request, now);
  EXPECT_EQ(asked.request, 5U);
  EXPECT_EQ(asked.choices, 3);
  EXPECT_EQ(asked.beam_width, 0);
  EXPECT_EQ(asked.prompt, request.prompt);
  EXPECT_EQ(asked.priority, 3);
  EXPECT_EQ(asked.sampling, request.sampling);
}

TEST(RequestTracker, completes_an_answer_when_the_last_of_its_choices_ends) {
  RequestTracker tracker(nullptr);
  tracker.begin(3, request_of(5, 2, 2), now);
  EXPECT_TRUE(tracker.take(update_of(5, 1, {7}, -1, {}), now).known);
  auto outcome = tracker.take(update_of(5, 1, {8}, -1, SequenceEnd::length), now);
  EXPECT_FALSE(outcome.completion.has_value());
  EXPECT_EQ(outcome.replica, 3U);
  outcome = tracker.take(update_of(5, 0, {9}, -1, SequenceEnd::stop), now);
  ASSERT_TRUE(outcome.completion.has_value());
  EXPECT_EQ(outcome.request, 5U);
  EXPECT_EQ(outcome.completion->id, 5U);
  EXPECT_FALSE(outcome.completion->failed());
  ASSERT_EQ(outcome.completion->choices.size(), 2U);
  EXPECT_EQ(outcome.completion->choices[0].token_ids, Ids{9});
  EXPECT_EQ(outcome.completion->choices[0].finish_reason, FinishReason::stop);
  EXPECT_EQ(outcome.completion->choices[1].token_ids, (Ids{7, 8}));
  EXPECT_EQ(outcome.completion->choices[1].finish_reason, FinishReason::length);
  EXPECT_EQ(outcome.completion->prompt_ids, (Ids{10, 11, 12}));
  EXPECT_EQ(tracker.size(), 0U);
  EXPECT_FALSE(tracker.take(update_of(5, 0, {8}, -1, {}), now).known) << "it is answered";
}

TEST(RequestTracker, tells_when_the_first_and_the_last_token_came) {
  RequestTracker tracker(nullptr);
  const auto at = [](int us) { return now + std::chrono::microseconds(us); };
  tracker.begin(0, request_of(5, 1, 1), at(10));
  EXPECT_TRUE(tracker.take(update_of(5, 0, {}, 0, {}), at(20)).known) << "a chunk of the prompt";
  EXPECT_TRUE(tracker.take(update_of(5, 0, {7}, 0, {}), at(35)).known);
  EXPECT_TRUE(tracker.take(update_of(5, 0, {7}, 0, {}), at(45)).known);
  const auto outcome = tracker.take(update_of(5, 0, {8}, 0, SequenceEnd::length), at(70));
  ASSERT_TRUE(outcome.completion.has_value());
  EXPECT_EQ(outcome.completion->first_token_us, 25U);
  EXPECT_EQ(outcome.completion->last_token_us, 60U);
}

TEST(RequestTracker, gives_the_likeliest_of_best_of_by_the_mean_over_tokens) {
  RequestTracker tracker(nullptr);
  const SequenceGroupSpec asked = tracker.begin(0, request_of(5, 2, 4), now);
  EXPECT_EQ(asked.choices, 4);
  EXPECT_EQ(asked.sampling.logprobs, 0) << "without scores none is best";
  // Sums are -3, -2, -4, -2; means -1, -2, -1, -0.5: equal ones keep the order of their choices.
  const std::vector<std::pair<Ids, float>> answers{
      {{1, 1, 1}, -1.0F}, {{2}, -2.0F}, {{3, 3, 3, 3}, -1.0F}, {{4, 4, 4, 4}, -0.5F}};
  RequestTracker::Outcome outcome;
  for (std::int32_t i = 0; i < 4; ++i) {
    const auto& [ids, logprob] = answers[static_cast<std::size_t>(i)];
    outcome = tracker.take(update_of(5, i, ids, logprob, SequenceEnd::length), now);
  }
  ASSERT_TRUE(outcome.completion.has_value());
  ASSERT_EQ(outcome.completion->choices.size(), 2U);
  EXPECT_EQ(outcome.completion->choices[0].token_ids, answers[3].first);
  EXPECT_EQ(outcome.completion->choices[1].token_ids, answers[0].first);
  EXPECT_TRUE(outcome.completion->choices[0].logprobs.empty()) << "nobody asked for scores";
}

TEST(RequestTracker, gathers_the_scores_of_a_prompt_from_its_chunks) {
  RequestTracker tracker(nullptr);
  PreparedRequest request = request_of(5, 2, 2);
  request.sampling.prompt_logprobs = 0;
  tracker.begin(0, request, now);
  SequenceUpdate later;
  later.request = 5;
  later.prompt_begin = 2;
  later.prompt_logprobs = {{-2.0F, {}, {}, 4}};
  SequenceUpdate earlier = later;
  earlier.prompt_begin = 1;
  earlier.prompt_logprobs = {{-1.0F, {}, {}, 2}};
  tracker.take(earlier, now);
  tracker.take(later, now);
  tracker.take(update_of(5, 0, {7}, 0, SequenceEnd::length), now);
  const auto outcome = tracker.take(update_of(5, 1, {7}, 0, SequenceEnd::length), now);
  ASSERT_TRUE(outcome.completion.has_value());
  ASSERT_EQ(outcome.completion->prompt_logprobs.size(), 2U);
  EXPECT_EQ(outcome.completion->prompt_logprobs[0].rank, 2);
  EXPECT_EQ(outcome.completion->prompt_logprobs[1].logprob, -2.0F);
}

TEST(RequestTracker, fails_the_request_whose_logits_fail) {
  RequestTracker tracker(nullptr);
  tracker.begin(2, request_of(5, 2, 2), now);
  tracker.begin(0, request_of(6, 1, 1), now);
  const auto outcome = tracker.take(update_of(5, 0, {}, 0, SequenceEnd::failed), now);
  ASSERT_TRUE(outcome.completion.has_value());
  EXPECT_EQ(outcome.completion->error_code, "not_finite");
  EXPECT_EQ(outcome.completion->id, 5U);
  EXPECT_EQ(outcome.request, 5U);
  EXPECT_EQ(outcome.replica, 2U);
  EXPECT_FALSE(tracker.take(update_of(5, 1, {7}, 0, {}), now).known);
  EXPECT_TRUE(tracker.take(update_of(6, 0, {7}, 0, {}), now).known);
}

TEST(RequestTracker, aborts_a_sequence_that_a_stop_string_ended) {
  auto loaded = Tokenizer::load(test::source_path("tests/data/text/fable"));
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const Tokenizer& tokenizer = *loaded;
  RequestTracker tracker(&tokenizer);
  PreparedRequest request = request_of(5, 2, 2);
  request.form.stop = {" king"};
  request.form.detokenizer.emplace(tokenizer, true, request.prompt);
  tracker.begin(1, request, now);
  const Ids words = *tokenizer.encode("the old king of", false);
  auto outcome = tracker.take(update_of(5, 0, words, 0, {}), now);
  EXPECT_EQ(outcome.aborted, 0);
  EXPECT_EQ(outcome.replica, 1U);
  EXPECT_FALSE(outcome.completion.has_value()) << "the other choice goes on";
  outcome = tracker.take(update_of(5, 1, words, 0, SequenceEnd::length), now);
  EXPECT_FALSE(outcome.aborted.has_value()) << "the scheduler ended it itself";
  ASSERT_TRUE(outcome.completion.has_value());
  for (const Choice& choice : outcome.completion->choices) EXPECT_EQ(choice.text, "the old");
}

TEST(RequestTracker, advances_a_search_when_all_beams_of_a_step_are_heard_of) {
  RequestTracker tracker(nullptr);
  const SequenceGroupSpec asked = tracker.begin(0, beam_of(5, 2, 1), now);
  EXPECT_EQ(asked.beam_width, 2);
  EXPECT_EQ(asked.sampling.logprobs, 4);
  EXPECT_EQ(asked.sampling.max_tokens, 2);
  auto outcome = tracker.take(proposal(5, 0, {1, 2, 3, 4}, {-1, -2, -3, -4}), now);
  EXPECT_EQ(outcome.beams, (std::vector<Ids>{{1}, {2}}));
  // The second beam's results come first; its best is -2.5 against the first one's -3.
  outcome = tracker.take(proposal(5, 2, {8, 9, 3, 4}, {-0.5F, -3, -3, -4}), now);
  EXPECT_TRUE(outcome.beams.empty());
  EXPECT_FALSE(outcome.completion.has_value());
  outcome = tracker.take(proposal(5, 1, {6, 7, 3, 4}, {-2, -2.5F, -3, -4}), now);
  ASSERT_TRUE(outcome.completion.has_value());
  ASSERT_EQ(outcome.completion->choices.size(), 1U);
  EXPECT_EQ(outcome.completion->choices[0].token_ids, (Ids{2, 8}));
  EXPECT_EQ(outcome.completion->prompt_ids, (Ids{10, 11, 12}));
}

TEST(RequestTracker, forgets_requests_of_which_nothing_ran) {
  RequestTracker tracker(nullptr);
  tracker.begin(0, request_of(1, 2, 2), now);
  tracker.begin(1, request_of(2, 2, 2), now);
  tracker.drop(std::vector<std::uint64_t>{1});
  EXPECT_EQ(tracker.size(), 1U);
  EXPECT_FALSE(tracker.take(update_of(1, 0, {7}, 0, {}), now).known);
  EXPECT_TRUE(tracker.take(update_of(2, 0, {7}, 0, {}), now).known);
}

TEST(RequestTracker, measures_the_time_between_the_tokens_of_each_sequence) {
  using std::chrono::milliseconds;
  RequestTracker tracker(nullptr);
  tracker.begin(0, request_of(5, 2, 2), now);
  tracker.take(update_of(5, 0, {1}, 0, std::nullopt), now + milliseconds(10));
  tracker.take(update_of(5, 1, {1}, 0, std::nullopt), now + milliseconds(11));
  EXPECT_EQ(tracker.inter_token_us().count(), 0U) << "first tokens follow none";
  // Two tokens that come together share the time since the one before.
  tracker.take(update_of(5, 0, {2, 3}, 0, std::nullopt), now + milliseconds(20));
  tracker.take(update_of(5, 1, {}, 0, std::nullopt), now + milliseconds(21));
  tracker.take(update_of(5, 1, {2}, 0, std::nullopt), now + milliseconds(31));
  const DistributionSketch& between = tracker.inter_token_us();
  EXPECT_EQ(between.count(), 3U);
  EXPECT_DOUBLE_EQ(between.quantile_us(0), 5000);
  EXPECT_DOUBLE_EQ(between.quantile_us(0.5), 5000);
  EXPECT_DOUBLE_EQ(between.quantile_us(1), 20000);
}

}  // namespace
}  // namespace troupe
