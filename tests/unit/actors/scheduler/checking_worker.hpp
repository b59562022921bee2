#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "actors/scheduler/scheduler.hpp"

namespace troupe {

/// Carries out plans as real workers do, with a hash in place of keys and values: a cell of a block
/// holds the hash of all tokens up to its position. Checks of every token that is computed that it
/// finds the right hashes in all cells that it sees. What it samples is random, and may fail.
class CheckingWorker {
 public:
  struct Sequence {
    std::uint64_t request = 0;
    std::vector<std::int32_t> tokens;
    std::vector<std::vector<BlockId>> tables;  ///< [groups]
    std::int32_t computed = 0;
    bool scoring = false;
  };

  CheckingWorker(const SchedulerConfig& config, std::mt19937& random)
      : config_(config),
        random_(random),
        cells_(static_cast<std::size_t>(config.kv_cache_blocks) *
               static_cast<std::size_t>(config.block_size)) {}

  const std::map<SequenceId, Sequence>& sequences() const { return sequences_; }

  /// Failures are gtest's.
  StepResult run(const StepPlan& plan) {
    StepResult result{plan.step, plan.epoch, {}, 100};
    for (const SequenceId id : plan.released) EXPECT_EQ(sequences_.erase(id), 1U);
    for (const NewSequence& started : plan.started) start(started);
    EXPECT_LE(sequences_.size(), static_cast<std::size_t>(config_.max_num_seqs));
    std::int32_t tokens = 0;
    for (const SequenceStep& step : plan.steps) {
      tokens += step.tokens;
      take_blocks(step);
    }
    EXPECT_LE(tokens, config_.max_num_batched_tokens);
    for (const SequenceStep& step : plan.steps) write(step);
    for (const SequenceStep& step : plan.steps) read(step);
    for (const SequenceStep& step : plan.steps) {
      if (step.sample) result.results.push_back(sample(step));
    }
    std::shuffle(result.results.begin(), result.results.end(), random_);
    return result;
  }

 private:
  std::int32_t below(std::int32_t bound) {
    return static_cast<std::int32_t>(random_() % static_cast<std::uint32_t>(bound));
  }

  void start(const NewSequence& started) {
    const auto [at, fresh] = sequences_.try_emplace(started.id);
    ASSERT_TRUE(fresh) << "id " << started.id << " is still in use";
    Sequence& sequence = at->second;
    sequence.request = started.sampling.seed;
    sequence.tokens = started.tokens;
    sequence.tables.resize(config_.windows.size());
    sequence.computed = started.cached_tokens;
    sequence.scoring = started.sampling.max_tokens == 0;
    ASSERT_LT(started.cached_tokens, static_cast<std::int32_t>(started.tokens.size()));
  }

  void take_blocks(const SequenceStep& step) {
    ASSERT_TRUE(sequences_.contains(step.id));
    Sequence& sequence = sequences_[step.id];
    const std::size_t groups = sequence.tables.size();
    ASSERT_EQ(step.new_blocks.size() % groups, 0U);
    const std::size_t each = step.new_blocks.size() / groups;
    for (std::size_t i = 0; i < step.new_blocks.size(); ++i) {
      sequence.tables[i / each].push_back(step.new_blocks[i]);
    }
    ASSERT_GE(step.tokens, 1);
    ASSERT_EQ(step.first_position, sequence.computed);
    const auto known = static_cast<std::int32_t>(sequence.tokens.size());
    const std::int32_t end = step.first_position + step.tokens;
    const auto drafts = static_cast<std::int32_t>(step.drafts.size());
    ASSERT_LE(end, known + drafts) << "a token was planned that nobody knows";
    ASSERT_EQ(step.sample, end == known + drafts && !sequence.scoring);
    ASSERT_LE(end, static_cast<std::int32_t>(sequence.tables[0].size()) * config_.block_size);
    sequence.tokens.insert(sequence.tokens.end(), step.drafts.begin(), step.drafts.end());
    sequence.computed = end;
  }

  std::uint64_t& cell(BlockId block, std::int32_t position) {
    const auto size = static_cast<std::size_t>(config_.block_size);
    return cells_[static_cast<std::size_t>(block) * size +
                  static_cast<std::size_t>(position) % size];
  }

  /// Of all tokens up to each position.
  static std::vector<std::uint64_t> hashes(const std::vector<std::int32_t>& tokens) {
    std::vector<std::uint64_t> all;
    std::uint64_t hash = 7;
    for (const std::int32_t token : tokens) {
      hash = (hash ^ static_cast<std::uint64_t>(token + 1)) * 0x9E3779B97F4A7C15ULL;
      hash ^= hash >> 29;
      all.push_back(hash);
    }
    return all;
  }

  void write(const SequenceStep& step) {
    const Sequence& sequence = sequences_[step.id];
    const auto expected = hashes(sequence.tokens);
    for (std::size_t group = 0; group < sequence.tables.size(); ++group) {
      for (std::int32_t p = step.first_position; p < sequence.computed; ++p) {
        const BlockId block =
            sequence.tables[group][static_cast<std::size_t>(p / config_.block_size)];
        ASSERT_GE(block, 0);
        cell(block, p) = expected[static_cast<std::size_t>(p)] + group;
      }
    }
  }

  void read(const SequenceStep& step) {
    const Sequence& sequence = sequences_[step.id];
    const auto expected = hashes(sequence.tokens);
    for (std::size_t group = 0; group < sequence.tables.size(); ++group) {
      const std::int32_t window = config_.windows[group];
      const std::int32_t first = window == 0 ? 0 : std::max(step.first_position - window + 1, 0);
      for (std::int32_t p = first; p < sequence.computed; ++p) {
        const BlockId block =
            sequence.tables[group][static_cast<std::size_t>(p / config_.block_size)];
        ASSERT_GE(block, 0) << "position " << p << " is seen but was given back";
        ASSERT_EQ(cell(block, p), expected[static_cast<std::size_t>(p)] + group)
            << "request " << sequence.request << " finds other keys at position " << p;
      }
    }
  }

  SequenceResult sample(const SequenceStep& step) {
    Sequence& sequence = sequences_[step.id];
    SequenceResult row;
    row.id = step.id;
    const auto drafts = static_cast<std::int32_t>(step.drafts.size());
    const std::int32_t held = drafts == 0 ? 0 : below(drafts + 1);
    const auto known = sequence.tokens.size() - step.drafts.size();
    row.failed = below(30) == 0;
    row.tokens.assign(step.drafts.begin(), step.drafts.begin() + held);
    row.tokens.push_back(below(30));
    sequence.tokens.resize(known);
    sequence.tokens.insert(sequence.tokens.end(), row.tokens.begin(), row.tokens.end());
    sequence.computed = static_cast<std::int32_t>(sequence.tokens.size()) - 1;
    if (row.failed) row.tokens.clear();
    return row;
  }

  const SchedulerConfig& config_;
  std::mt19937& random_;
  std::vector<std::uint64_t> cells_;  ///< [blocks * block_size]
  std::map<SequenceId, Sequence> sequences_;
};

}  // namespace troupe
