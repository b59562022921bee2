#include "actors/worker/model_runner.hpp"

#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "actors/worker/startup/warm_up.hpp"
#include "parallel/collectives/shm/shm_collectives.hpp"
#include "runtime/memory/shared_memory.hpp"
#include "tests/support/require.hpp"
#include "tests/unit/actors/worker/delayed_ops.hpp"
#include "tests/unit/actors/worker/runner_rank.hpp"

namespace troupe {
namespace {

constexpr std::int64_t few_head_rows = 6;

SamplingParams greedy() {
  SamplingParams sampling;
  sampling.temperature = 0.0F;
  return sampling;
}

SamplingParams seeded(std::uint64_t seed) {
  SamplingParams sampling;
  sampling.top_k = 50;
  sampling.seed = seed;
  return sampling;
}

/// Plans of sequences that have two blocks each.
class Plans {
 public:
  StepPlan& next() {
    plans_.emplace_back().step = plans_.size();
    return plans_.back();
  }
  /// In the last plan: starts a sequence of `tokens` tokens, whose next token is sampled.
  void start(SequenceId id, std::int32_t tokens, const SamplingParams& sampling,
             std::int32_t first_token = 5) {
    StepPlan& plan = plans_.back();
    NewSequence sequence;
    sequence.id = id;
    sequence.prompt_tokens = tokens;
    sequence.sampling = sampling;
    for (std::int32_t t = 0; t < tokens; ++t) {
      sequence.tokens.push_back((first_token + 31 * t) % 250);
    }
    plan.started.push_back(std::move(sequence));
    const auto block = static_cast<std::int32_t>(2 * id);
    plan.steps.push_back(
        {.id = id, .tokens = tokens, .new_blocks = {block, block + 1}, .sample = true});
    if (known_.size() <= id) known_.resize(id + 1);
    known_[id] = tokens + 1;
  }
  /// The same in two parts; finish_prompt plans the last `left` tokens.
  void begin_prompt(SequenceId id, std::int32_t tokens, const SamplingParams& sampling,
                    std::int32_t first_token, std::int32_t left) {
    start(id, tokens, sampling, first_token);
    plans_.back().steps.back().tokens = tokens - left;
    plans_.back().steps.back().sample = false;
  }
  void finish_prompt(SequenceId id, std::int32_t left) {
    decode(id);
    SequenceStep& step = plans_.back().steps.back();
    step.first_position -= left;
    step.tokens = left;
    --known_.at(id);
  }
  void decode(SequenceId id) {
    plans_.back().steps.push_back({.id = id,
                                   .first_position = known_.at(id) - 1,
                                   .tokens = 1,
                                   .new_blocks = {},
                                   .sample = true});
    ++known_.at(id);
  }
  void release(SequenceId id) { plans_.back().released.push_back(id); }
  void swap_out(SequenceId id, std::vector<std::int32_t> host_blocks) {
    plans_.back().swapped_out.push_back({id, std::move(host_blocks)});
  }
  void swap_in(SequenceId id, std::vector<std::int32_t> host_blocks,
               std::vector<std::int32_t> blocks) {
    plans_.back().swapped_in.push_back({id, std::move(host_blocks), std::move(blocks)});
  }

  StepPlan& last() { return plans_.back(); }
  const std::vector<StepPlan>& all() const { return plans_; }

 private:
  std::vector<StepPlan> plans_;
  std::vector<std::int32_t> known_;  ///< tokens of each sequence
};

Result<std::vector<StepResult>> take_one_by_one(const RunnerRank& rank, const Plans& plans) {
  std::vector<StepResult> results;
  for (const StepPlan& plan : plans.all()) {
    TROUPE_TRY(StepResult result, rank.take(plan));
    results.push_back(std::move(result));
  }
  return results;
}

struct TakenAhead {
  std::vector<StepResult> results;
  std::size_t begun_ahead = 0;  ///< steps begun while another was under way
};

/// Begins each step as soon as possible.
Result<TakenAhead> take_ahead(const RunnerRank& rank, const Plans& plans) {
  TakenAhead taken;
  ModelRunner& runner = *rank.runner;
  for (std::size_t next = 0; next < plans.all().size() || runner.begun() > 0;) {
    if (next < plans.all().size() && runner.can_begin()) {
      taken.begun_ahead += runner.begun() > 0 ? 1 : 0;
      TROUPE_CHECK(runner.begin(plans.all()[next++]));
      continue;
    }
    TROUPE_TRY(StepResult result, runner.finish());
    taken.results.push_back(std::move(result));
  }
  return taken;
}

void expect_same(const std::vector<StepResult>& found, const std::vector<StepResult>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "step " << i);
    EXPECT_EQ(found[i].step, expected[i].step);
    ASSERT_EQ(found[i].results.size(), expected[i].results.size());
    for (std::size_t j = 0; j < found[i].results.size(); ++j) {
      const SequenceResult& own = found[i].results[j];
      const SequenceResult& other = expected[i].results[j];
      SCOPED_TRACE(testing::Message() << "result " << j << ", of sequence " << own.id);
      EXPECT_EQ(own.id, other.id);
      EXPECT_EQ(own.tokens, other.tokens);
      EXPECT_EQ(own.logprobs, other.logprobs);
      EXPECT_EQ(own.prompt_begin, other.prompt_begin);
      EXPECT_EQ(own.prompt_logprobs, other.prompt_logprobs);
      EXPECT_FALSE(own.failed || other.failed);
    }
  }
}

struct Outcome {
  std::size_t begun_ahead = 0;
  std::size_t chosen_taken = 0;
  std::size_t replayed = 0;
};

/// Runs the plans ahead on an asynchronous device, and one by one on the CPU: the results must be
/// the same.
Result<Outcome> expect_same_ahead(const Plans& plans, std::int64_t max_head_rows,
                                  const DelayedOptions& options = {.cuts = true}) {
  TROUPE_TRY(const RunnerRank plain, RunnerRank::make_on_cpu(max_head_rows));
  auto device = std::make_unique<DelayedOps>(options);
  const DelayedOps& ops = *device;
  TROUPE_TRY(const RunnerRank ahead, RunnerRank::make(std::move(device), max_head_rows));
  TROUPE_TRY(const auto expected, take_one_by_one(plain, plans));
  TROUPE_TRY(const TakenAhead taken, take_ahead(ahead, plans));
  expect_same(taken.results, expected);
  return Outcome{taken.begun_ahead, ops.chosen_taken(), ops.replayed()};
}

/// Two sequences and their answers.
Plans two_answers(int steps) {
  Plans plans;
  plans.next();
  plans.start(0, 5, greedy());
  plans.start(1, 3, seeded(7));
  for (int step = 0; step < steps; ++step) {
    plans.next();
    plans.decode(0);
    plans.decode(1);
  }
  return plans;
}

TEST(ModelRunner, begins_the_next_step_before_it_knows_the_tokens_of_the_last) {
  auto device = std::make_unique<DelayedOps>(DelayedOptions{.cuts = true});
  REQUIRE_OK(const RunnerRank rank, RunnerRank::make(std::move(device)));
  const Plans plans = two_answers(2);
  ModelRunner& runner = *rank.runner;
  ASSERT_TRUE(runner.begin(plans.all()[0]).ok());
  EXPECT_FALSE(runner.is_ready());
  ASSERT_TRUE(runner.can_begin());
  ASSERT_TRUE(runner.begin(plans.all()[1]).ok());
  EXPECT_FALSE(runner.can_begin());
  EXPECT_EQ(runner.begun(), 2U);
  REQUIRE_OK(const StepResult first, runner.finish());
  EXPECT_EQ(first.results.at(1).tokens.size(), 1U);
  EXPECT_FALSE(runner.is_ready()) << "the second step was waited for with the first";
}

TEST(ModelRunner, finds_the_same_tokens_ahead_as_one_by_one) {
  REQUIRE_OK(const Outcome outcome, expect_same_ahead(two_answers(9), few_head_rows));
  EXPECT_EQ(outcome.begun_ahead, 9U);
  EXPECT_EQ(outcome.chosen_taken, 9U);
}

/// Sequence 0 in a batch of two answers, where it pauses for five steps.
Plans answer_with_a_rest(bool swaps) {
  Plans plans = two_answers(3);
  const auto decode = [&](bool both) {
    plans.next();
    if (both) plans.decode(0);
    plans.decode(1);
  };
  decode(false);
  if (swaps) plans.swap_out(0, {5, 0});
  decode(false);
  plans.start(2, 20, seeded(3));
  if (swaps) plans.last().steps.back().new_blocks = {0, 1};  // formerly sequence 0's
  decode(false);
  plans.decode(2);
  decode(false);
  plans.decode(2);
  decode(false);
  if (swaps) plans.swap_in(0, {5, 0}, {9, 4});
  for (int step = 0; step < 5; ++step) decode(true);
  return plans;
}

TEST(ModelRunner, goes_on_with_a_sequence_that_was_swapped_out_as_if_it_had_rested) {
  REQUIRE_OK(const RunnerRank resting, RunnerRank::make_on_cpu());
  REQUIRE_OK(const auto expected, take_one_by_one(resting, answer_with_a_rest(false)));
  REQUIRE_OK(const RunnerRank swapping, RunnerRank::make_on_cpu());
  ASSERT_TRUE(swapping.runner->allow_swaps(6).ok());
  REQUIRE_OK(const auto found, take_one_by_one(swapping, answer_with_a_rest(true)));
  expect_same(found, expected);

  REQUIRE_OK(const RunnerRank ahead, RunnerRank::make(std::make_unique<DelayedOps>(
                                         DelayedOptions{.cuts = true, .records = true})));
  ASSERT_TRUE(ahead.runner->allow_swaps(6).ok());
  REQUIRE_OK(const TakenAhead taken, take_ahead(ahead, answer_with_a_rest(true)));
  expect_same(taken.results, expected);
  EXPECT_GT(taken.begun_ahead, 10U);
}

TEST(ModelRunner, refuses_swaps_that_do_not_fit) {
  const auto outcome_of = [](const std::function<void(Plans&)>& add, bool allowed = true) {
    auto rank = RunnerRank::make_on_cpu();
    EXPECT_TRUE(rank.ok());
    if (allowed) {
      EXPECT_TRUE(rank->runner->allow_swaps(6).ok());
    }
    Plans plans = two_answers(2);
    plans.next();
    add(plans);
    const auto taken = take_one_by_one(*rank, plans);
    return taken.ok() ? std::nullopt : std::optional(taken.error().code);
  };
  const auto rests = [](Plans& plans) {
    plans.swap_out(0, {2, 3});
    plans.next();
  };
  EXPECT_EQ(outcome_of([&](Plans& p) {
              rests(p);
              p.swap_in(0, {2, 3}, {8, 9});
            }),
            std::nullopt);
  EXPECT_EQ(outcome_of([](Plans& p) { p.swap_out(0, {2, 3}); }, false), ErrorCode::corrupt_data);
  const std::vector<std::function<void(Plans&)>> wrong = {
      [](Plans& p) { p.swap_out(7, {2, 3}); },
      [](Plans& p) { p.swap_out(0, {2}); },
      [](Plans& p) { p.swap_out(0, {2, 3, 4}); },
      [](Plans& p) { p.swap_out(0, {2, 6}); },
      [](Plans& p) { p.swap_out(0, {-1, 2}); },
      [](Plans& p) { p.swap_in(0, {2, 3}, {8, 9}); },
      [&](Plans& p) {
        rests(p);
        p.decode(0);
      },
      [&](Plans& p) {
        rests(p);
        p.swap_out(0, {4, 5});
      },
      [&](Plans& p) {
        rests(p);
        p.swap_in(0, {3, 2}, {8, 9});
      },
      [&](Plans& p) {
        rests(p);
        p.swap_in(0, {2, 3}, {8});
      },
      [&](Plans& p) {
        rests(p);
        p.swap_in(0, {2, 3}, {8, 24});
      },
      [&](Plans& p) {
        rests(p);
        p.swap_in(0, {2, 3}, {-1, 8});
      },
  };
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    EXPECT_EQ(outcome_of(wrong[i]), ErrorCode::corrupt_data) << "case " << i;
  }
}

TEST(ModelRunner, penalizes_tokens_that_the_host_does_not_know_yet) {
  SamplingParams penalized = greedy();
  penalized.repetition_penalty = 3.0F;
  SamplingParams also_biased = seeded(7);
  also_biased.frequency_penalty = 2.0F;
  also_biased.presence_penalty = 1.0F;
  also_biased.logit_bias = {{5, 4.0F}, {36, 4.0F}};
  Plans plans;
  plans.next();
  plans.start(0, 5, penalized);
  plans.start(1, 3, also_biased);
  plans.start(2, 3, greedy(), 50);
  for (int step = 0; step < 9; ++step) {
    plans.next();
    for (SequenceId id = 0; id < 3; ++id) plans.decode(id);
  }
  REQUIRE_OK(const Outcome outcome,
             expect_same_ahead(plans, few_head_rows, {.cuts = true, .edits = true}));
  EXPECT_EQ(outcome.begun_ahead, 9U);
  EXPECT_EQ(outcome.chosen_taken, 2 * 9U) << "for the inputs and for the histories";
}

TEST(ModelRunner, finds_the_same_tokens_in_passes_that_are_recorded) {
  Plans plans = two_answers(6);
  for (int step = 0; step < 4; ++step) {  // three rows are a pass of four
    plans.next();
    plans.decode(0);
    plans.decode(1);
    if (step == 0) plans.start(2, 1, seeded(11));
    if (step > 0) plans.decode(2);
  }
  REQUIRE_OK(const Outcome outcome,
             expect_same_ahead(plans, few_head_rows, {.cuts = true, .records = true}));
  EXPECT_EQ(outcome.begun_ahead, 10U);
  // The first pass of each length runs uncaptured.
  EXPECT_EQ(outcome.replayed, 6U - 1 + 4 - 1);
}

TEST(ModelRunner, answers_the_same_on_a_device_that_was_warmed_up) {
  REQUIRE_OK(const RunnerRank plain, RunnerRank::make_on_cpu());
  REQUIRE_OK(const RunnerRank warm, RunnerRank::make(std::make_unique<DelayedOps>(
                                        DelayedOptions{.cuts = true, .records = true})));
  const Result<void> warmed = warm_up(*warm.runner, *warm.model, RunnerRank::blocks);
  ASSERT_TRUE(warmed.ok()) << warmed.error().message;
  const Plans plans = two_answers(5);
  REQUIRE_OK(const auto expected, take_one_by_one(plain, plans));
  REQUIRE_OK(const TakenAhead taken, take_ahead(warm, plans));
  expect_same(taken.results, expected);
}

TEST(ModelRunner, takes_a_step_of_several_passes_while_another_is_under_way) {
  SamplingParams scored = seeded(3);
  scored.prompt_logprobs = 2;
  for (const bool answers_first : {true, false}) {
    SCOPED_TRACE(answers_first ? "the known sequences come first"
                               : "the scored prompt comes first");
    Plans plans = two_answers(2);
    plans.next();
    const auto decode = [&] {
      plans.decode(0);
      plans.decode(1);
    };
    if (answers_first) decode();
    plans.start(2, 20, scored);  // 20 rows of logits: four passes
    if (!answers_first) decode();
    for (int step = 0; step < 3; ++step) {
      plans.next();
      decode();
      plans.decode(2);
    }
    REQUIRE_OK(const Outcome outcome, expect_same_ahead(plans, few_head_rows));
    // The step after the one of several passes is begun only when that is finished.
    EXPECT_EQ(outcome.begun_ahead, 2U + 1 + 2);
  }
}

TEST(ModelRunner, takes_a_step_of_more_sequences_than_a_pass_has_logits_ahead) {
  Plans plans;
  plans.next();
  for (SequenceId id = 0; id < few_head_rows; ++id) plans.start(id, 2, seeded(id), 5 + 7 * id);
  for (int step = 0; step < 4; ++step) {
    plans.next();
    for (SequenceId id = 0; id < few_head_rows; ++id) plans.decode(id);
    for (SequenceId id = 6; id < 9; ++id) {
      if (step == 0) plans.start(id, 2, greedy(), 90 + 7 * id);
      if (step > 0) plans.decode(id);
    }
  }
  REQUIRE_OK(const Outcome outcome, expect_same_ahead(plans, few_head_rows));
  EXPECT_EQ(outcome.begun_ahead, 1U);
  EXPECT_EQ(outcome.chosen_taken, 1U);
}

TEST(ModelRunner, lets_sequences_go_whose_step_is_under_way) {
  Plans plans = two_answers(2);
  plans.next();
  plans.release(1);
  plans.decode(0);
  // Another one with that id, in the same blocks: it must not get the first one's tokens.
  plans.begin_prompt(1, 9, greedy(), 77, 5);
  plans.next();
  plans.release(0);
  plans.finish_prompt(1, 5);
  plans.next();
  plans.start(0, 4, seeded(5), 33);
  plans.decode(1);
  plans.next();
  plans.release(0);
  plans.release(1);
  REQUIRE_OK(const Outcome outcome, expect_same_ahead(plans, few_head_rows));
  EXPECT_EQ(outcome.begun_ahead, plans.all().size() - 1);
}

TEST(ModelRunner, waits_for_tokens_that_the_host_chooses) {
  SamplingParams scored = greedy();
  scored.logprobs = 3;
  Plans plans = two_answers(2);
  plans.next();
  plans.decode(0);
  plans.decode(1);
  plans.start(2, 6, scored, 60);
  for (int step = 0; step < 4; ++step) {
    plans.next();
    if (step == 2) plans.release(2);
    plans.decode(0);
    if (step < 2) plans.decode(2);
    plans.decode(1);
  }
  REQUIRE_OK(const Outcome outcome, expect_same_ahead(plans, few_head_rows));
  // Except those after the three steps of sequence 2.
  EXPECT_EQ(outcome.begun_ahead, plans.all().size() - 1 - 3);
}

/// Two tensor ranks that run the plans, the first of them with a draft model.
Result<std::vector<StepResult>> answer_with_guesses(const Plans& plans) {
  TROUPE_TRY(const Mesh mesh, Mesh::create({.tensor = 2}));
  TROUPE_TRY(const SharedMemory region, SharedMemory::create(shm_collectives_bytes(2)));
  const auto run = [&](int rank, Collectives& group) -> Result<std::vector<StepResult>> {
    ParallelContext parallel;
    parallel.mesh = mesh;
    parallel.rank = rank;
    parallel.tensor = &group;
    TROUPE_TRY(const RunnerRank made, RunnerRank::make(std::make_unique<DelayedOps>(DelayedOptions{
                                                           .at_once = true, .records = true}),
                                                       few_head_rows, parallel));
    made.runner->enable_drafting();
    std::unique_ptr<Drafter> drafter;
    if (rank == 0) {
      TROUPE_TRY(Drafter loaded,
                 Drafter::create(RunnerRank::folder(), LoadFormat::safetensors,
                                 made.model->config(), made.model->limits(), *made.ops));
      drafter = std::make_unique<Drafter>(std::move(loaded));
      TROUPE_CHECK(drafter->allocate_kv_cache(RunnerRank::blocks));
      made.runner->set_drafter(*drafter, 2);
    }
    TROUPE_TRY(TakenAhead taken, take_ahead(made, plans));
    EXPECT_EQ(taken.begun_ahead, 0U) << "rank " << rank;
    return std::move(taken.results);
  };
  std::vector<Result<std::vector<StepResult>>> found(2, std::vector<StepResult>());
  {
    std::vector<std::unique_ptr<Collectives>> groups;
    for (int rank = 0; rank < 2; ++rank) {
      TROUPE_TRY(UniqueFd fd, region.duplicate_fd());
      TROUPE_TRY(SharedMemory mapped, SharedMemory::map(std::move(fd)));
      TROUPE_TRY(auto group, ShmCollectives::attach(std::move(mapped), rank, 2));
      groups.push_back(std::move(group));
    }
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        const auto at = static_cast<std::size_t>(rank);
        found[at] = run(rank, *groups[at]);
        if (!found[at].ok()) groups[at]->abort();
      });
    }
    threads.clear();
  }
  if (!found[1].ok()) return std::move(found[1]).error();
  return std::move(found[0]);
}

TEST(ModelRunner, runs_the_same_passes_on_ranks_with_and_without_the_draft_model) {
  Plans plans = two_answers(0);
  plans.start(2, 4, greedy(), 90);
  for (int step = 0; step < 3; ++step) {  // passes of three rows, which would be padded to four
    plans.next();
    for (SequenceId id = 0; id < 3; ++id) plans.decode(id);
  }
  REQUIRE_OK(const RunnerRank plain, RunnerRank::make_on_cpu(few_head_rows));
  REQUIRE_OK(const auto expected, take_one_by_one(plain, plans));
  REQUIRE_OK(const auto found, answer_with_guesses(plans));
  expect_same(found, expected);
  EXPECT_EQ(found.back().results.at(0).drafts.size(), 2U);
}

}  // namespace
}  // namespace troupe
