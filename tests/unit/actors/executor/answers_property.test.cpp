#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "actors/api/request_progress.hpp"
#include "actors/executor/beam_search.hpp"
#include "actors/executor/request_tracker.hpp"
#include "actors/executor/stop_strings.hpp"
#include "tests/support/source_path.hpp"

// Random requests through the answer tracker and a real scheduler, with a toy model for workers:
// every answer must equal the one of the request alone, whatever was planned ahead, preempted or
// drained.

namespace troupe {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::int32_t eos = 4095;
constexpr std::int32_t first_word = 300;  // of the tokenizer: words and parts of words
constexpr std::int32_t words = 60;

/// The likeliest tokens after `tokens`, best first: a fixed function of them and the choice.
TokenLogprobs toy_model(std::span<const std::int32_t> tokens, std::uint32_t choice,
                        std::size_t count) {
  std::uint64_t state = 0x9E3779B97F4A7C15U + choice;
  for (const std::int32_t id : tokens) {
    state = (state ^ static_cast<std::uint64_t>(id)) * 0xBF58476D1CE4E5B9U;
    state ^= state >> 29;
  }
  std::mt19937_64 random(state);
  TokenLogprobs found;
  float logprob = -0.25F;
  while (found.top_ids.size() < count) {
    auto id = first_word + static_cast<std::int32_t>(random() % words);
    if (random() % 12 == 0) id = eos;
    if (std::ranges::find(found.top_ids, id) != found.top_ids.end()) continue;
    found.top_ids.push_back(id);
    found.top_logprobs.push_back(logprob);
    logprob -= static_cast<float>(random() % 1000) / 1000;
  }
  found.logprob = found.top_logprobs.front();
  return found;
}

bool logits_fail(std::span<const std::int32_t> tokens) { return tokens.back() == first_word + 7; }

/// Carries out plans in order, like workers.
class ToyWorker {
 public:
  StepResult run(const StepPlan& plan) {
    for (const SequenceId id : plan.released) sequences_.erase(id);
    for (const NewSequence& started : plan.started) sequences_[started.id] = started;
    StepResult result;
    result.step = plan.step;
    result.epoch = plan.epoch;
    for (const SequenceStep& step : plan.steps) {
      if (!step.sample) continue;
      NewSequence& sequence = sequences_.at(step.id);
      SequenceResult row;
      row.id = step.id;
      const bool fails = sequence.sampling.min_tokens == 1 && logits_fail(sequence.tokens);
      const auto wanted = static_cast<std::size_t>(std::max(sequence.sampling.logprobs, 1));
      TokenLogprobs best = toy_model(sequence.tokens, sequence.sampling.choice, wanted);
      sequence.tokens.push_back(best.top_ids.front());
      if (fails) {
        row.failed = true;
      } else {
        row.tokens.push_back(best.top_ids.front());
        if (sequence.sampling.logprobs >= 0) row.logprobs.push_back(std::move(best));
      }
      result.results.push_back(std::move(row));
    }
    return result;
  }

 private:
  std::map<SequenceId, NewSequence> sequences_;
};

struct Expected {
  bool fails = false;
  std::vector<Ids> choices;
};

/// The output of a choice running alone; nothing if its logits fail.
std::optional<Ids> choice_alone(const PreparedRequest& request, std::uint32_t choice,
                                const Tokenizer& tokenizer) {
  Ids known = request.prompt;
  Ids output;
  while (std::ssize(output) < request.sampling.max_tokens) {
    if (request.sampling.min_tokens == 1 && logits_fail(known)) return std::nullopt;
    const std::int32_t id = toy_model(known, choice, 1).top_ids.front();
    known.push_back(id);
    output.push_back(id);
    if (id == eos) break;
    const auto from = static_cast<std::size_t>(request.sampling.min_tokens);
    if (output.size() <= from) continue;
    const std::string text = tokenizer.decode(output, true);
    const std::size_t before = tokenizer.decode(std::span(output).first(from), true).size();
    if (find_stop_string(request.form.stop, text, before)) break;
  }
  return output;
}

Expected alone(const PreparedRequest& request, const Tokenizer& tokenizer) {
  Expected expected;
  if (request.form.beam) {
    BeamSearch search({.width = request.form.beam->width,
                       .max_tokens = request.sampling.max_tokens,
                       .prompt_tokens = request.prompt.size(),
                       .eos_ids = request.form.eos_ids});
    while (!search.beams().empty()) {
      std::vector<TokenLogprobs> proposed;
      for (const Beam& beam : search.beams()) {
        Ids known = request.prompt;
        known.insert(known.end(), beam.tokens.begin(), beam.tokens.end());
        proposed.push_back(toy_model(known, 0, static_cast<std::size_t>(search.proposals())));
      }
      search.advance(proposed);
    }
    for (const Beam& beam : search.best(static_cast<std::size_t>(request.form.n))) {
      expected.choices.push_back(beam.tokens);
    }
    return expected;
  }
  for (std::int32_t i = 0; i < request.form.n; ++i) {
    auto tokens = choice_alone(request, static_cast<std::uint32_t>(i), tokenizer);
    if (!tokens) return {.fails = true, .choices = {}};
    expected.choices.push_back(*std::move(tokens));
  }
  return expected;
}

PreparedRequest random_request(std::uint64_t id, std::mt19937& random, const Tokenizer& tokenizer) {
  PreparedRequest request;
  request.id = id;
  for (unsigned i = 0, count = 1 + random() % 40; i < count; ++i) {
    request.prompt.push_back(first_word + static_cast<std::int32_t>(random() % 4));
  }
  request.sampling.max_tokens = 1 + static_cast<std::int32_t>(random() % 30);
  request.sampling.stop_token_ids = {eos};
  request.form.eos_ids = {eos};
  request.form.own_end = eos;
  request.form.detokenizer.emplace(tokenizer, true, request.prompt);
  request.form.n = request.form.best_of = 1 + static_cast<std::int32_t>(random() % 4);
  if (random() % 5 == 0) {
    request.form.beam = BeamParams{request.form.best_of, 1.0F};
    request.sampling.max_tokens = 1 + static_cast<std::int32_t>(random() % 6);
  } else if (random() % 2 == 0) {
    const std::int32_t id_of_stop = first_word + static_cast<std::int32_t>(random() % words);
    request.form.stop = {tokenizer.decode(std::span(&id_of_stop, 1), true)};
  } else if (random() % 4 == 0) {
    request.sampling.min_tokens = 1;  // for the toy model: its logits may fail
  }
  return request;
}

/// A domain of one replica and its executor, without actors.
class Bench {
 public:
  Bench(Scheduler scheduler, const Tokenizer& tokenizer)
      : tokenizer_(tokenizer), scheduler_(std::move(scheduler)), tracker_(&tokenizer, true) {}

  void submit(PreparedRequest request) {
    unanswered_[request.id] = {request, {}};
    begin(std::move(request), {});
  }

  /// Reports what unfinished requests have generated.
  void report() {
    for (SequenceUpdate& update : tracker_.take_progress()) {
      unanswered_.at(update.request).second.add(std::move(update));
    }
  }

  /// Everything is lost but what has been reported; goes on with a new scheduler.
  void lose_executor(Scheduler scheduler) {
    scheduler_ = std::move(scheduler);
    tracker_ = RequestTracker(&tokenizer_, true);
    worker_ = {};
    in_flight_.clear();
    for (auto& [id, unanswered] : unanswered_) begin(unanswered.first, unanswered.second.updates());
    const auto audit = scheduler_.audit();
    EXPECT_TRUE(audit.ok()) << audit.error().message;
  }

  /// Plans what can be planned and applies the oldest result. False: there is nothing to do.
  bool step() {
    while (auto plan = scheduler_.plan()) in_flight_.push_back(worker_.run(*plan));
    if (in_flight_.empty()) return false;
    auto updates = scheduler_.apply(std::move(in_flight_.front()));
    in_flight_.pop_front();
    EXPECT_TRUE(updates.ok()) << updates.error().message;
    if (!updates.ok()) return false;
    for (SequenceUpdate& update : *updates) carry_out(tracker_.take(std::move(update), {}));
    const auto audit = scheduler_.audit();
    EXPECT_TRUE(audit.ok()) << audit.error().message;
    return audit.ok();
  }

  void drain() {
    const auto waiting = scheduler_.abort_waiting();
    tracker_.drop(waiting);
    for (const std::uint64_t id : waiting) unanswered_.erase(id);
    dropped.insert(waiting.begin(), waiting.end());
  }

  bool is_empty() const { return tracker_.size() == 0 && scheduler_.live() == 0; }

  std::map<std::uint64_t, Completion> completions;
  std::set<std::uint64_t> dropped;
  std::size_t kept_tokens = 0;  ///< that lost executors had generated

 private:
  void begin(PreparedRequest request, std::vector<SequenceUpdate> progress) {
    SequenceGroupSpec spec = tracker_.begin(0, std::move(request), {}, std::move(progress));
    for (const ResumedSequence& resumed : spec.resumed) kept_tokens += resumed.tokens.size();
    const auto added = scheduler_.add(std::move(spec));
    ASSERT_TRUE(added.ok()) << added.error().message;
  }

  void carry_out(RequestTracker::Outcome outcome) {
    if (outcome.aborted) scheduler_.abort(outcome.request, *outcome.aborted);
    if (!outcome.beams.empty()) {
      const auto advanced = scheduler_.advance(outcome.request, std::move(outcome.beams));
      ASSERT_TRUE(advanced.ok()) << advanced.error().message;
    }
    if (!outcome.completion) return;
    scheduler_.abort(outcome.request);
    EXPECT_TRUE(completions.emplace(outcome.request, *std::move(outcome.completion)).second)
        << outcome.request;
    unanswered_.erase(outcome.request);
  }

  const Tokenizer& tokenizer_;
  std::map<std::uint64_t, std::pair<PreparedRequest, RequestProgress>> unanswered_;
  Scheduler scheduler_;
  RequestTracker tracker_;
  ToyWorker worker_;
  std::deque<StepResult> in_flight_;
};

SchedulerConfig random_config(std::mt19937& random) {
  SchedulerConfig config;
  config.max_num_seqs = 1 + static_cast<std::int32_t>(random() % 12);
  config.max_num_batched_tokens = 4 + static_cast<std::int32_t>(random() % 60);
  config.max_model_len = 128;
  config.block_size = 4;
  config.kv_cache_blocks = 32 + static_cast<std::int32_t>(random() % 60);
  config.micro_batches = 1 + static_cast<std::int32_t>(random() % 2);
  config.max_steps_in_flight = config.micro_batches + static_cast<std::int32_t>(random() % 2);
  config.prefix_caching = random() % 2 == 0;
  if (random() % 3 == 0) config.swap_blocks = 8 + static_cast<std::int32_t>(random() % 60);
  return config;
}

/// Counts of answers that were checked.
struct Checked {
  std::size_t failed = 0;
  std::size_t dropped = 0;
  std::size_t stopped = 0;
};

void check(const Bench& bench, const std::map<std::uint64_t, PreparedRequest>& requests,
           const Tokenizer& tokenizer, Checked& all) {
  EXPECT_TRUE(bench.is_empty()) << "something is left";
  for (const auto& [id, request] : requests) {
    SCOPED_TRACE("request " + std::to_string(id));
    if (bench.dropped.contains(id)) {
      EXPECT_FALSE(bench.completions.contains(id));
      ++all.dropped;
      continue;
    }
    ASSERT_TRUE(bench.completions.contains(id)) << "no answer";
    const Completion& found = bench.completions.at(id);
    const Expected expected = alone(request, tokenizer);
    EXPECT_EQ(found.failed(), expected.fails) << found.error;
    all.failed += expected.fails ? 1 : 0;
    ASSERT_EQ(found.choices.size(), expected.choices.size());
    for (std::size_t i = 0; i < expected.choices.size(); ++i) {
      EXPECT_EQ(found.choices[i].token_ids, expected.choices[i]) << "choice " << i;
      all.stopped += found.choices[i].stop_string.empty() ? 0 : 1;
    }
  }
}

/// Submits up to three random requests more, while there are fewer than `count`.
void submit_some(Bench& bench, std::map<std::uint64_t, PreparedRequest>& requests,
                 std::uint64_t count, std::mt19937& random, const Tokenizer& tokenizer) {
  for (unsigned i = 0, more = random() % 4; i < more && requests.size() < count; ++i) {
    const std::uint64_t id = requests.size();
    requests[id] = random_request(id, random, tokenizer);
    bench.submit(requests[id]);
  }
}

TEST(Answers, of_random_requests_are_those_that_each_gets_alone_and_none_is_lost) {
  auto tokenizer = Tokenizer::load(test::source_path("tests/data/text/fable"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  Checked all;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    auto scheduler = Scheduler::make(random_config(random));
    ASSERT_TRUE(scheduler.ok()) << scheduler.error().message;
    Bench bench(*std::move(scheduler), *tokenizer);
    std::map<std::uint64_t, PreparedRequest> requests;
    const std::uint64_t count = 10 + random() % 20;
    const bool drains = seed % 3 == 0;
    const unsigned drain_after = 1 + random() % 40;
    unsigned steps = 0;
    bool busy = true;
    while (busy) {
      submit_some(bench, requests, count, random, *tokenizer);
      busy = bench.step() || requests.size() < count;
      if (drains && ++steps == drain_after) bench.drain();
      ASSERT_LT(steps, 100000U);
    }
    ASSERT_NO_FATAL_FAILURE(check(bench, requests, *tokenizer, all));
  }
  EXPECT_GT(all.failed, 10U) << "too few for the test to say anything";
  EXPECT_GT(all.dropped, 10U) << "too few for the test to say anything";
  EXPECT_GT(all.stopped, 100U) << "too few for the test to say anything";
}

TEST(Answers, of_executors_that_die_at_random_moments_are_those_of_one_that_lives) {
  auto tokenizer = Tokenizer::load(test::source_path("tests/data/text/fable"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  Checked all;
  std::size_t kept = 0;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const SchedulerConfig config = random_config(random);
    const auto make_scheduler = [&config] {
      auto scheduler = Scheduler::make(config);
      EXPECT_TRUE(scheduler.ok()) << scheduler.error().message;
      return *std::move(scheduler);
    };
    Bench bench(make_scheduler(), *tokenizer);
    std::map<std::uint64_t, PreparedRequest> requests;
    const std::uint64_t count = 10 + random() % 20;
    unsigned deaths = 0;
    bool busy = true;
    while (busy) {
      submit_some(bench, requests, count, random, *tokenizer);
      busy = bench.step() || requests.size() < count;
      if (random() % 4 == 0) bench.report();
      if (deaths < 20 && random() % 12 == 0) {
        ++deaths;
        bench.lose_executor(make_scheduler());
        busy = true;
      }
    }
    ASSERT_NO_FATAL_FAILURE(check(bench, requests, *tokenizer, all));
    kept += bench.kept_tokens;
  }
  EXPECT_GT(all.failed, 10U) << "too few for the test to say anything";
  EXPECT_GT(all.stopped, 100U) << "too few for the test to say anything";
  EXPECT_GT(kept, 10000U) << "too few for the test to say anything";
}

}  // namespace
}  // namespace troupe
