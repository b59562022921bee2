#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "actors/scheduler/scheduler.hpp"
#include "tests/unit/actors/scheduler/checking_worker.hpp"

namespace troupe {
namespace {

/// A random workload with a worker that checks every plan.
class Workload {
 public:
  /// How much host memory there is for swaps, and how long answers are.
  enum class Swaps : std::uint8_t { none, some, some_of_long_answers };

  explicit Workload(std::uint32_t seed, Swaps swaps = Swaps::none) : random_(seed) {
    config_.max_num_seqs = 1 + below(12);
    config_.max_num_batched_tokens = 1 + below(60);
    config_.max_model_len = 20 + below(100);
    config_.block_size = 1 + below(16);
    config_.prefix_caching = below(2) == 0;
    if (below(4) == 0) {
      config_.speculation = {SpeculationConfig::Method::prompt_lookup, 1 + below(4), 1 + below(3)};
    }
    config_.policy = static_cast<SchedulingPolicy>(below(4));
    switch (below(4)) {
      case 0:
        config_.windows = {1 + below(40)};
        break;
      case 1:
        config_.windows = {0, 1 + below(40)};
        break;
      default:
        break;
    }
    config_.max_steps_in_flight = 1 + below(4);
    config_.micro_batches = 1 + below(4);
    config_.chunked_prefill = below(4) != 0;
    if (!config_.chunked_prefill) {
      config_.max_num_batched_tokens =
          std::max(config_.max_num_batched_tokens, config_.max_model_len);
    }
    // Any one request fits, sometimes barely.
    const KvTables tables(1, config_.block_size, config_.windows, false);
    config_.kv_cache_blocks =
        tables.max_held(config_.max_model_len, config_.max_num_batched_tokens) + below(30);
    max_prompt_ = config_.max_model_len;
    restarts_ = below(3) == 0;
    to_add_ = 1 + below(60);
    if (swaps != Swaps::none) config_.swap_blocks = 1 + below(1 << below(10));
    if (swaps == Swaps::some_of_long_answers) lengthen_answers();
    worker_.emplace(config_, random_, rarity_);
  }

  void run() {
    auto made = Scheduler::make(config_);
    ASSERT_TRUE(made.ok()) << made.error().message;
    scheduler_.emplace(std::move(made).value());
    // Every round plans or applies at least one token of some request, or adds one.
    for (int round = 0; round < 40000; ++round) {
      if (testing::Test::HasFailure()) return;
      if (to_add_ > 0 && below(3) == 0) add();
      if (below(40 * calm_) == 0) abort();
      if (restarts_ && below(60 * calm_) == 0) restart();
      std::optional<StepPlan> plan;
      if (below(2) == 0) {
        plan = scheduler_->plan(round);
        ASSERT_TRUE(plan || scheduler_->live() == 0 || scheduler_->in_flight() > 0)
            << "nothing would ever be planned again";
      }
      if (plan) {
        ASSERT_FALSE(plan->steps.empty() && plan->swapped_out.empty() && plan->swapped_in.empty());
        take_plan(*plan);
      }
      if (config_.swap_blocks > 0 && below(20) == 0) plan_empty();
      if (!results_.empty() && below(2) == 0) apply();
      audit();
      if (to_add_ == 0 && scheduler_->live() == 0 && results_.empty()) break;
    }
    EXPECT_EQ(scheduler_->live(), 0U) << "somebody starved";
    EXPECT_EQ(scheduler_->blocks().free_blocks(), config_.kv_cache_blocks) << "blocks leaked";
    EXPECT_TRUE(live_.empty());
    counters_ = scheduler_->counters();
  }

  const SchedulerCounters& counters() const { return counters_; }

 private:
  struct Live {
    std::vector<std::int32_t> tokens;  ///< of the prompt and the updates
    std::int32_t limit = 0;            ///< tokens that may still come
  };

  /// So that taking turns pays off.
  void lengthen_answers() {
    config_.max_model_len += 600;
    config_.max_num_batched_tokens += config_.chunked_prefill ? 0 : 600;
    config_.kv_cache_blocks += 600 / config_.block_size * static_cast<int>(config_.windows.size());
    max_tokens_ = 600;
    rarity_ = 1000;
    calm_ = 30;
    to_add_ = 4 + below(20);
    config_.max_num_seqs += 3;
    if (below(4) != 0) config_.swap_blocks = 10 * config_.kv_cache_blocks;
  }

  std::int32_t below(std::int32_t bound) {
    return static_cast<std::int32_t>(random_() % static_cast<std::uint32_t>(bound));
  }

  void add() {
    --to_add_;
    SequenceGroupSpec spec;
    spec.request = next_request_++;
    const std::int32_t length = 1 + below(max_prompt_);
    // Few prefixes, so that many are shared.
    const std::int32_t family = below(3);
    for (std::int32_t i = 0; i < length; ++i) spec.prompt.push_back(1 + (i * (family + 2)) % 11);
    if (below(2) == 0) spec.prompt[static_cast<std::size_t>(below(length))] = 20;
    spec.priority = below(3);
    if (below(2) == 0) spec.deadline_us = below(3000);
    spec.sampling.seed = spec.request;
    spec.sampling.max_tokens = below(4) == 0 ? 0 : below(max_tokens_);
    spec.sampling.stop_token_ids = {0};
    const bool fits = length + (spec.sampling.max_tokens > 0 ? 1 : 0) <= config_.max_model_len;
    const std::int32_t limit = std::min(spec.sampling.max_tokens, config_.max_model_len - length);
    Live live{spec.prompt, limit};
    const auto request = spec.request;
    const auto added = scheduler_->add(std::move(spec));
    ASSERT_EQ(added.ok(), fits) << (added.ok() ? "" : added.error().message);
    if (fits) live_.emplace(request, std::move(live));
  }

  void abort() {
    if (live_.empty()) return;
    auto victim = live_.begin();
    std::advance(victim, below(static_cast<std::int32_t>(live_.size())));
    EXPECT_TRUE(scheduler_->abort(victim->first));
    live_.erase(victim);
  }

  void restart() {
    results_.clear();
    worker_.emplace(config_, random_, rarity_);
    scheduler_->restart(++epoch_);
  }

  /// Steps without tokens, as if other replicas stepped.
  void plan_empty() {
    if (results_.size() == static_cast<std::size_t>(config_.max_steps_in_flight)) return;
    const StepPlan plan = scheduler_->plan_empty();
    ASSERT_TRUE(plan.steps.empty() && plan.started.empty() && plan.swapped_in.empty());
    take_plan(plan);
  }

  void take_plan(const StepPlan& plan) {
    ASSERT_EQ(plan.epoch, epoch_);
    ASSERT_EQ(plan.step, next_step_++);
    ASSERT_LT(results_.size(), static_cast<std::size_t>(config_.max_steps_in_flight));
    std::set<std::uint64_t> waiting;
    for (const auto& [request, live] : live_) waiting.insert(request);
    for (const auto& [id, sequence] : worker_->sequences()) {
      if (std::ranges::find(plan.released, id) == plan.released.end()) {
        waiting.erase(sequence.request);
      }
    }
    for (const NewSequence& started : plan.started) {
      const std::uint64_t request = started.sampling.seed;
      ASSERT_TRUE(waiting.contains(request));
      if (config_.policy == SchedulingPolicy::fcfs) {
        ASSERT_EQ(request, *waiting.begin()) << "not the first that came";
      }
      waiting.erase(request);
      ASSERT_EQ(started.tokens, live_.at(request).tokens) << "tokens were lost";
    }
    results_.push_back(worker_->run(plan));
  }

  void apply() {
    const auto updates = scheduler_->apply(std::move(results_.front()));
    results_.pop_front();
    ASSERT_TRUE(updates.ok()) << updates.error().message;
    for (const SequenceUpdate& update : *updates) {
      const auto found = live_.find(update.request);
      ASSERT_NE(found, live_.end()) << "an update for an ended request";
      Live& live = found->second;
      live.tokens.insert(live.tokens.end(), update.tokens.begin(), update.tokens.end());
      live.limit -= static_cast<std::int32_t>(update.tokens.size());
      const bool stopped = !update.tokens.empty() && update.tokens.back() == 0;
      ASSERT_GE(live.limit, 0) << "more tokens than asked for";
      if (stopped) {
        ASSERT_EQ(update.end, SequenceEnd::stop);
      } else if (live.limit == 0) {
        ASSERT_EQ(update.end, SequenceEnd::length);
      }
      ASSERT_LE(std::ranges::count(update.tokens, 0), stopped ? 1 : 0);
      if (update.end) live_.erase(found);
    }
  }

  void audit() {
    const auto audit = scheduler_->audit();
    ASSERT_TRUE(audit.ok()) << audit.error().message;
    ASSERT_EQ(scheduler_->live(), live_.size());
  }

  std::mt19937 random_;
  SchedulerConfig config_;
  std::optional<Scheduler> scheduler_;
  std::optional<CheckingWorker> worker_;
  bool restarts_ = false;
  std::int32_t to_add_ = 0;
  std::int32_t max_prompt_ = 0;
  std::int32_t calm_ = 1;         ///< factor by which aborts and restarts are rarer
  std::int32_t max_tokens_ = 40;  ///< of an answer, plus one
  std::int32_t rarity_ = 30;      ///< of stop tokens and failures
  std::uint64_t next_request_ = 0;
  std::uint64_t next_step_ = 0;
  std::uint32_t epoch_ = 0;
  std::map<std::uint64_t, Live> live_;
  std::deque<StepResult> results_;  ///< of plans in flight
  SchedulerCounters counters_;
};

TEST(SchedulerProperty, keeps_every_invariant_under_random_workloads) {
  std::uint64_t preemptions = 0;
  std::uint64_t shared_tokens = 0;
  for (std::uint32_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Workload workload(seed);
    workload.run();
    preemptions += workload.counters().preemptions;
    shared_tokens += workload.counters().prefix_tokens;
    if (HasFailure()) return;
  }
  EXPECT_GT(preemptions, 500U) << "the workloads leave something out";
  EXPECT_GT(shared_tokens, 5000U) << "the workloads leave something out";
}

TEST(SchedulerProperty, keeps_every_invariant_while_sequences_are_swapped) {
  SchedulerCounters counters;
  for (std::uint32_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Workload workload(seed, Workload::Swaps::some);
    workload.run();
    counters.add(workload.counters());
    if (HasFailure()) return;
  }
  EXPECT_GT(counters.swaps, 300U) << "the workloads leave something out";
  EXPECT_GT(counters.preemptions, 30U) << "the workloads leave something out";
}

TEST(SchedulerProperty, keeps_every_invariant_while_long_sequences_take_turns) {
  SchedulerCounters counters;
  for (std::uint32_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Workload workload(seed, Workload::Swaps::some_of_long_answers);
    workload.run();
    counters.add(workload.counters());
    if (HasFailure()) return;
  }
  EXPECT_GT(counters.swaps, 150U) << "the workloads leave something out";
}

}  // namespace
}  // namespace troupe
