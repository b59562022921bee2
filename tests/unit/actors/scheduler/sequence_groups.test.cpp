#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>

#include <gmock/gmock.h>

#include "tests/unit/actors/scheduler/checking_worker.hpp"
#include "tests/unit/actors/scheduler/honest_worker.hpp"

// Requests of several sequences: choices and beams.

namespace troupe {
namespace {

using Tokens = std::vector<std::int32_t>;

SequenceGroupSpec choices_of(std::uint64_t request, std::int32_t choices, std::int32_t max_tokens) {
  SequenceGroupSpec spec = spec_of(request, 8, max_tokens);
  spec.choices = choices;
  return spec;
}

SequenceGroupSpec search_of(std::uint64_t request, std::int32_t width, std::int32_t max_tokens) {
  SequenceGroupSpec spec = spec_of(request, 8, max_tokens);
  spec.beam_width = width;
  return spec;
}

TEST(SequenceGroups, begin_their_choices_in_order_as_there_is_room) {
  Scheduler scheduler = make({.max_num_seqs = 3});
  add(scheduler, choices_of(1, 4, 2));
  add(scheduler, choices_of(2, 1, 2));
  EXPECT_EQ(scheduler.live(), 5U);
  EXPECT_EQ(scheduler.waiting(), 5U);
  const StepPlan first = plan(scheduler);
  ASSERT_EQ(first.started.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(first.started[i].sampling.choice, i);
    EXPECT_EQ(first.started[i].tokens, choices_of(1, 4, 2).prompt);
  }
  apply(scheduler, answer(first));
  const auto updates = apply(scheduler, answer(plan(scheduler)));
  ASSERT_EQ(updates.size(), 3U);
  EXPECT_EQ(updates[2].request, 1U);
  EXPECT_EQ(updates[2].sequence, 2);
  EXPECT_EQ(updates[2].end, SequenceEnd::length);
  const StepPlan third = plan(scheduler);
  ASSERT_EQ(third.started.size(), 2U);
  EXPECT_EQ(third.started[0].sampling.choice, 3U);
}

TEST(SequenceGroups, score_the_prompt_with_the_first_choice_alone) {
  Scheduler scheduler = make({});
  SequenceGroupSpec spec = choices_of(1, 3, 2);
  spec.sampling.prompt_logprobs = 2;
  add(scheduler, spec);
  const StepPlan first = plan(scheduler);
  ASSERT_EQ(first.started.size(), 3U);
  EXPECT_EQ(first.started[0].sampling.prompt_logprobs, 2);
  EXPECT_EQ(first.started[1].sampling.prompt_logprobs, -1);
}

TEST(SequenceGroups, end_with_the_last_of_their_choices_whoever_ended_it) {
  Scheduler scheduler = make({.max_num_seqs = 2});
  add(scheduler, choices_of(1, 3, 1));
  const StepPlan first = plan(scheduler);
  EXPECT_TRUE(scheduler.abort(1, 0));
  EXPECT_FALSE(scheduler.abort(1, 0)) << "it has ended";
  EXPECT_FALSE(scheduler.abort(1, 7)) << "there is none";
  EXPECT_EQ(apply(scheduler, answer(first)).size(), 1U) << "choice 1";
  EXPECT_EQ(scheduler.live(), 1U);
  apply(scheduler, answer(plan(scheduler)));
  EXPECT_EQ(scheduler.live(), 0U);
  EXPECT_FALSE(scheduler.abort(1));
}

TEST(SequenceGroups, are_aborted_with_what_has_not_begun) {
  Scheduler scheduler = make({.max_num_seqs = 2});
  add(scheduler, choices_of(1, 5, 4));
  add(scheduler, choices_of(2, 5, 4));
  apply(scheduler, answer(plan(scheduler)));
  EXPECT_EQ(scheduler.abort_waiting(), std::vector<std::uint64_t>{2}) << "request 1 has begun";
  EXPECT_EQ(scheduler.live(), 5U);
  EXPECT_TRUE(scheduler.abort(1));
  EXPECT_EQ(scheduler.live(), 0U);
  EXPECT_TRUE(scheduler.audit().ok());
}

/// Runs searches that always continue with the same tokens, and returns the order in which requests
/// end.
std::vector<std::uint64_t> order_of_ends(Scheduler& scheduler, std::uint64_t search,
                                         std::int32_t width, std::int32_t steps) {
  std::vector<std::uint64_t> ended;
  std::int32_t missing = 1;
  Tokens beam;
  while (scheduler.live() > 0 && !testing::Test::HasFailure()) {
    for (const SequenceUpdate& update : apply(scheduler, answer(plan(scheduler)))) {
      if (!update.end) continue;
      if (update.request != search) {
        ended.push_back(update.request);
      } else if (--missing == 0) {
        beam.push_back(7);
        const bool is_over = static_cast<std::int32_t>(beam.size()) == steps;
        missing = is_over ? 0 : width;
        std::vector<Tokens> beams(static_cast<std::size_t>(missing), beam);
        for (std::size_t i = 0; i < beams.size(); ++i) beams[i].back() += static_cast<int>(i);
        EXPECT_TRUE(scheduler.advance(search, std::move(beams)).ok());
        if (is_over) ended.push_back(search);
      }
    }
  }
  return ended;
}

TEST(SequenceGroups, of_a_search_keep_its_place_before_all_that_came_later) {
  for (const bool prefix_caching : {false, true}) {
    Scheduler scheduler = make({.max_num_seqs = 4, .prefix_caching = prefix_caching});
    add(scheduler, search_of(0, 4, 16));
    for (std::uint64_t request = 1; request < 40; ++request) {
      add(scheduler, spec_of(request, 8, 16));
    }
    const auto ended = order_of_ends(scheduler, 0, 4, 16);
    ASSERT_EQ(ended.size(), 40U);
    EXPECT_EQ(ended.front(), 0U) << "it came first";
  }
}

TEST(SequenceGroups, of_a_search_wait_for_the_ids_of_all_its_beams) {
  Scheduler scheduler = make({.max_num_seqs = 4});
  add(scheduler, spec_of(1, 8, 4));
  add(scheduler, search_of(2, 4, 2));
  add(scheduler, spec_of(3, 8, 1));
  const StepPlan first = plan(scheduler);
  EXPECT_EQ(first.started.size(), 1U) << "the search holds back what came behind it";
  apply(scheduler, answer(first));
  EXPECT_EQ(order_of_ends(scheduler, 2, 4, 2), (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST(SequenceGroups, of_a_search_find_the_blocks_of_the_step_before_however_full_the_cache_is) {
  // 8 blocks of 4: the search needs 6, another request takes all that is free in between.
  Scheduler scheduler =
      make({.max_num_seqs = 4, .block_size = 4, .kv_cache_blocks = 9, .prefix_caching = true});
  SequenceGroupSpec search = spec_of(1, 17, 8);
  search.beam_width = 1;
  add(scheduler, search);
  SequenceGroupSpec other = spec_of(2, 5, 24);
  std::ranges::reverse(other.prompt);
  add(scheduler, other);
  Tokens beam;
  for (int step = 0; step < 3; ++step) {
    const StepPlan planned = plan(scheduler);
    for (const NewSequence& started : planned.started) {
      if (started.tokens.front() != 100) continue;
      EXPECT_EQ(started.cached_tokens, beam.empty() ? 0 : 16) << "step " << step;
    }
    for (const SequenceUpdate& update : apply(scheduler, answer(planned))) {
      if (update.request != 1) continue;
      beam.push_back(5);
      ASSERT_TRUE(scheduler.advance(1, {beam}).ok());
    }
  }
  EXPECT_EQ(beam.size(), 3U);
}

TEST(SequenceGroups, are_advanced_only_between_the_steps_of_a_search) {
  Scheduler scheduler = make({});
  EXPECT_FALSE(scheduler.advance(1, {{5}}).ok()) << "there is none";
  add(scheduler, choices_of(1, 1, 2));
  EXPECT_FALSE(scheduler.advance(1, {{5}}).ok()) << "no search";
  add(scheduler, search_of(2, 2, 2));
  EXPECT_FALSE(scheduler.advance(2, {{5}}).ok()) << "its first step runs";
  apply(scheduler, answer(plan(scheduler)));
  EXPECT_TRUE(scheduler.advance(2, {{5}, {6}}).ok());
  EXPECT_EQ(plan(scheduler).started.size(), 2U);
}

/// Random requests of choices and beams with a worker that checks every key it reads.
class Workload {
 public:
  explicit Workload(std::uint32_t seed) : random_(seed) {
    config_.max_num_seqs = 1 + below(8);
    config_.max_num_batched_tokens = 8 + below(60);
    config_.max_model_len = 100;
    config_.block_size = 4;
    config_.kv_cache_blocks = 26 + below(40);
    config_.micro_batches = 1 + below(2);
    config_.max_steps_in_flight = config_.micro_batches + below(2);
    config_.prefix_caching = below(4) != 0;
    config_.policy = static_cast<SchedulingPolicy>(below(4));
    if (below(2) == 0) config_.swap_blocks = 10 + below(100);
    if (below(4) == 0) config_.windows = {0, 8};
    if (config_.windows.size() > 1) config_.kv_cache_blocks *= 2;
  }

  void run() {
    Scheduler scheduler = make(config_);
    CheckingWorker worker(config_, random_, 50);
    std::deque<StepResult> results;
    int to_add = 5 + below(30);
    for (int round = 0; round < 60000 && !testing::Test::HasFailure(); ++round) {
      if (to_add > 0 && below(4) == 0) {
        --to_add;
        add_one(scheduler);
      }
      if (below(80) == 0 && !live_.empty()) {
        const std::uint64_t victim = live_.begin()->first;
        EXPECT_TRUE(scheduler.abort(victim));
        live_.erase(victim);
      }
      if (below(300) == 0) {
        for (const std::uint64_t request : scheduler.abort_waiting()) live_.erase(request);
      }
      if (auto planned = scheduler.plan(round)) {
        results.push_back(worker.run(*planned));
      } else {
        ASSERT_TRUE(scheduler.live() == 0 || !results.empty()) << "nothing would ever be planned";
      }
      if (!results.empty() && below(2) == 0) {
        const auto updates = scheduler.apply(std::move(results.front()));
        results.pop_front();
        ASSERT_TRUE(updates.ok()) << updates.error().message;
        for (const SequenceUpdate& update : *updates) take(scheduler, update);
      }
      const auto audit = scheduler.audit();
      ASSERT_TRUE(audit.ok()) << audit.error().message;
      if (to_add == 0 && live_.empty() && results.empty()) break;
    }
    EXPECT_TRUE(live_.empty()) << "somebody starved";
    EXPECT_EQ(scheduler.live(), 0U);
    EXPECT_EQ(scheduler.blocks().free_blocks(), config_.kv_cache_blocks) << "blocks leaked";
  }

  std::size_t ended_searches() const { return ended_searches_; }
  std::size_t ended_choices() const { return ended_choices_; }

 private:
  struct Live {
    std::int32_t width = 0;   ///< 0: no search
    std::size_t missing = 1;  ///< sequences, or beams of this step
    std::vector<Tokens> beams;
    std::int32_t max_tokens = 0;
    std::set<std::int32_t> ended;
  };

  std::int32_t below(std::int32_t bound) {
    return static_cast<std::int32_t>(random_() % static_cast<std::uint32_t>(bound));
  }

  void add_one(Scheduler& scheduler) {
    SequenceGroupSpec spec;
    spec.request = next_request_++;
    const std::int32_t family = below(3);
    for (std::int32_t i = 0, length = 1 + below(40); i < length; ++i) {
      spec.prompt.push_back(1 + (i * (family + 2)) % 11);
    }
    spec.priority = below(3);
    if (below(2) == 0) spec.deadline_us = below(3000);
    spec.sampling.seed = spec.request;
    spec.sampling.max_tokens = 1 + below(30);
    Live live;
    live.max_tokens = spec.sampling.max_tokens;
    if (below(2) == 0) {
      live.width = spec.beam_width = 1 + below(5);
      live.beams = {{}};
    } else {
      spec.sampling.stop_token_ids = {0};
      spec.choices = 1 + below(12);
      live.missing = static_cast<std::size_t>(spec.choices);
    }
    live_.emplace(spec.request, std::move(live));
    add(scheduler, spec);
  }

  void take(Scheduler& scheduler, const SequenceUpdate& update) {
    const auto found = live_.find(update.request);
    if (found == live_.end()) return;  // another of its sequences failed in this step
    if (!update.end) return;
    Live& live = found->second;
    ASSERT_TRUE(live.ended.insert(update.sequence).second) << "it ended twice";
    if (update.end == SequenceEnd::failed) {
      scheduler.abort(update.request);
      live_.erase(found);
      return;
    }
    if (--live.missing > 0) return;
    if (live.width == 0) {
      ++ended_choices_;
      live_.erase(found);
      return;
    }
    const bool is_over = std::ssize(live.beams.front()) + 1 == live.max_tokens;
    std::vector<Tokens> next;
    for (std::int32_t i = 0, count = is_over ? 0 : 1 + below(live.width); i < count; ++i) {
      next.push_back(live.beams[static_cast<std::size_t>(
          below(static_cast<std::int32_t>(live.beams.size())))]);
      next.back().push_back(1 + below(20));
    }
    live.beams = next;
    live.missing = next.size();
    const auto advanced = scheduler.advance(update.request, std::move(next));
    ASSERT_TRUE(advanced.ok()) << advanced.error().message;
    if (!is_over) return;
    ++ended_searches_;
    live_.erase(found);
  }

  std::mt19937 random_;
  SchedulerConfig config_;
  std::map<std::uint64_t, Live> live_;
  std::uint64_t next_request_ = 0;
  std::size_t ended_searches_ = 0;
  std::size_t ended_choices_ = 0;
};

TEST(SequenceGroups, keep_every_invariant_under_random_workloads) {
  std::size_t searches = 0;
  std::size_t choices = 0;
  for (std::uint32_t seed = 1; seed <= 400 && !HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Workload workload(seed);
    workload.run();
    searches += workload.ended_searches();
    choices += workload.ended_choices();
  }
  EXPECT_GT(searches, 300U) << "the workloads leave something out";
  EXPECT_GT(choices, 300U) << "the workloads leave something out";
}

}  // namespace
}  // namespace troupe
