#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "actors/scheduler/scheduler.hpp"

namespace troupe {
namespace {

/// What a worker believes of a sequence, built from plans alone.
struct WorkerSequence {
  std::int32_t known = 0;
  std::int32_t computed = 0;
  std::int32_t prompt = 0;
  std::vector<BlockId> table;
  bool scoring = false;
};

/// A random workload against a worker that checks every plan it is given.
class Workload {
 public:
  explicit Workload(std::uint32_t seed) : random_(seed) {
    config_.max_num_seqs = 1 + below(12);
    config_.max_num_batched_tokens = 1 + below(60);
    config_.max_model_len = 20 + below(100);
    config_.block_size = 1 + below(16);
    config_.kv_cache_blocks =
        1 + config_.max_model_len / config_.block_size + below(30);  // any one request fits
    config_.max_steps_in_flight = 1 + below(4);
    config_.micro_batches = 1 + below(4);
    config_.chunked_prefill = below(4) != 0;
    if (!config_.chunked_prefill) {
      config_.max_num_batched_tokens =
          std::max(config_.max_num_batched_tokens, config_.max_model_len);
    }
    restarts_ = below(3) == 0;
    to_add_ = 1 + below(60);
  }

  void run() {
    auto made = Scheduler::make(config_);
    ASSERT_TRUE(made.ok()) << made.error().message;
    scheduler_.emplace(std::move(made).value());
    // Every round plans or applies at least one token of some request, or adds one.
    for (int round = 0; round < 40000; ++round) {
      if (testing::Test::HasFailure()) return;
      if (to_add_ > 0 && below(3) == 0) add();
      if (below(40) == 0) abort();
      if (restarts_ && below(60) == 0) restart();
      std::optional<StepPlan> plan;
      if (below(2) == 0) plan = scheduler_->plan();
      if (plan) take_plan(*std::move(plan));
      if (!queue_.empty() && below(2) == 0) apply();
      audit();
      if (to_add_ == 0 && scheduler_->live() == 0 && queue_.empty()) break;
    }
    EXPECT_EQ(scheduler_->live(), 0U) << "somebody starved";
    EXPECT_EQ(scheduler_->blocks().free_blocks(), config_.kv_cache_blocks) << "blocks leaked";
    EXPECT_TRUE(expected_.empty());
  }

 private:
  std::int32_t below(std::int32_t bound) {
    return static_cast<std::int32_t>(random_() % static_cast<std::uint32_t>(bound));
  }

  void add() {
    --to_add_;
    SequenceSpec spec;
    spec.request = next_request_++;
    const std::int32_t prompt = 1 + below(config_.max_model_len);
    spec.prompt.assign(static_cast<std::size_t>(prompt), 1);
    spec.prompt[0] = static_cast<std::int32_t>(spec.request);
    spec.sampling.max_tokens = below(4) == 0 ? 0 : below(40);
    spec.sampling.stop_token_ids = {0};
    const auto length = static_cast<std::int32_t>(spec.prompt.size());
    const bool fits = length + (spec.sampling.max_tokens > 0 ? 1 : 0) <= config_.max_model_len;
    const std::int32_t limit = std::min(spec.sampling.max_tokens, config_.max_model_len - length);
    const auto request = spec.request;
    const auto added = scheduler_->add(std::move(spec));
    ASSERT_EQ(added.ok(), fits) << (added.ok() ? "" : added.error().message);
    if (!fits) return;
    expected_[request] = limit;
    arrivals_.push_back(request);
  }

  void abort() {
    if (expected_.empty()) return;
    auto victim = expected_.begin();
    std::advance(victim, below(static_cast<std::int32_t>(expected_.size())));
    EXPECT_TRUE(scheduler_->abort(victim->first));
    std::erase(arrivals_, victim->first);
    expected_.erase(victim);
  }

  void restart() {
    queue_.clear();
    worker_.clear();
    scheduler_->restart(++epoch_);
    arrivals_.clear();
    for (const auto& [request, tokens] : expected_) arrivals_.push_back(request);
  }

  void take_plan(StepPlan plan) {
    ASSERT_EQ(plan.epoch, epoch_);
    ASSERT_EQ(plan.step, next_step_++);
    ASSERT_FALSE(plan.steps.empty());
    ASSERT_LT(queue_.size(), static_cast<std::size_t>(config_.max_steps_in_flight));
    for (const SequenceId id : plan.released) ASSERT_EQ(worker_.erase(id), 1U);
    for (const NewSequence& started : plan.started) {
      // The requests' numbers rise with their arrival.
      ASSERT_FALSE(arrivals_.empty());
      ASSERT_EQ(static_cast<std::uint64_t>(started.tokens[0]), arrivals_.front())
          << "not the first that came";
      arrivals_.pop_front();
      const auto [at, fresh] = worker_.try_emplace(started.id);
      ASSERT_TRUE(fresh) << "id " << started.id << " is still in use";
      at->second.known = static_cast<std::int32_t>(started.tokens.size());
      at->second.prompt = started.prompt_tokens;
      at->second.scoring = started.sampling.max_tokens == 0;
    }
    ASSERT_LE(worker_.size(), static_cast<std::size_t>(config_.max_num_seqs));
    std::int32_t tokens = 0;
    for (const SequenceStep& step : plan.steps) {
      ASSERT_TRUE(worker_.contains(step.id));
      WorkerSequence& sequence = worker_[step.id];
      tokens += step.tokens;
      ASSERT_GE(step.tokens, 1);
      ASSERT_EQ(step.first_position, sequence.computed);
      sequence.computed += step.tokens;
      ASSERT_LE(sequence.computed, sequence.known) << "a token was planned that nobody knows";
      ASSERT_EQ(step.sample, sequence.computed == sequence.known && !sequence.scoring);
      sequence.table.insert(sequence.table.end(), step.new_blocks.begin(), step.new_blocks.end());
      ASSERT_LE(sequence.computed,
                static_cast<std::int32_t>(sequence.table.size()) * config_.block_size);
    }
    ASSERT_LE(tokens, config_.max_num_batched_tokens);
    std::set<BlockId> owned;
    for (const auto& [id, sequence] : worker_) {
      for (const BlockId block : sequence.table) {
        ASSERT_TRUE(owned.insert(block).second) << "block " << block << " has two owners";
      }
    }
    queue_.push_back(std::move(plan));
  }

  void apply() {
    const StepPlan plan = std::move(queue_.front());
    queue_.pop_front();
    StepResult result;
    result.step = plan.step;
    result.epoch = plan.epoch;
    for (const SequenceStep& step : plan.steps) {
      if (!step.sample) continue;
      SequenceResult row;
      row.id = step.id;
      WorkerSequence& sequence = worker_[step.id];
      const std::int32_t kind = below(20);
      if (kind == 0) {
        row.failed = true;
      } else if (kind == 1) {
        --sequence.computed;  // nothing sampled: the position comes again
      } else {
        const std::int32_t count = kind == 2 ? 1 + below(3) : 1;
        for (std::int32_t i = 0; i < count; ++i) row.tokens.push_back(below(30));
        sequence.known += count;
      }
      result.results.push_back(std::move(row));
    }
    std::shuffle(result.results.begin(), result.results.end(), random_);
    const auto updates = scheduler_->apply(std::move(result));
    ASSERT_TRUE(updates.ok()) << updates.error().message;
    for (const SequenceUpdate& update : *updates) {
      const auto found = expected_.find(update.request);
      ASSERT_NE(found, expected_.end()) << "an update for an ended request";
      found->second -= static_cast<std::int32_t>(update.tokens.size());
      const bool stopped = !update.tokens.empty() && update.tokens.back() == 0;
      ASSERT_GE(found->second, 0) << "more tokens than asked for";
      if (stopped) {
        ASSERT_EQ(update.end, SequenceEnd::stop);
      } else if (found->second == 0) {
        ASSERT_EQ(update.end, SequenceEnd::length);
      }
      ASSERT_LE(std::count(update.tokens.begin(), update.tokens.end(), 0), stopped ? 1 : 0);
      if (update.end) expected_.erase(found);
    }
  }

  void audit() {
    const auto audit = scheduler_->audit();
    ASSERT_TRUE(audit.ok()) << audit.error().message;
    ASSERT_EQ(scheduler_->live(), expected_.size());
    ASSERT_EQ(scheduler_->waiting(), arrivals_.size());
  }

  std::mt19937 random_;
  SchedulerConfig config_;
  std::optional<Scheduler> scheduler_;
  bool restarts_ = false;
  std::int32_t to_add_ = 0;
  std::uint64_t next_request_ = 0;
  std::uint64_t next_step_ = 0;
  std::uint32_t epoch_ = 0;
  std::map<std::uint64_t, std::int32_t> expected_;  ///< live requests: tokens still to come
  std::deque<std::uint64_t> arrivals_;              ///< live requests not admitted, oldest first
  std::map<SequenceId, WorkerSequence> worker_;
  std::deque<StepPlan> queue_;
};

TEST(SchedulerProperty, keeps_every_invariant_under_random_workloads) {
  for (std::uint32_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Workload(seed).run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace troupe
