#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "actors/scheduler/scheduler.hpp"

namespace troupe {

/// Carries out plans like real workers, with a hash instead of KV: a cell of a block holds the hash
/// of all tokens up to its position. Checks for every computed token that all cells it sees hold
/// the right hashes. Its samples are random, and may fail. Swaps are copied as late as the contract
/// allows, when the plan's steps are done; a step that touches swapped blocks is a failure.
class CheckingWorker {
 public:
  struct Sequence {
    std::uint64_t request = 0;
    std::vector<std::int32_t> tokens;
    std::vector<std::vector<BlockId>> tables;  ///< [groups]
    std::int32_t computed = 0;
    bool scoring = false;
    bool is_out = false;                    ///< in host memory, or on its way back in this plan
    std::vector<std::int32_t> host_blocks;  ///< from its SwapOut
  };

  /// One in `rarity` samples is the stop token, and one fails.
  CheckingWorker(const SchedulerConfig& config, std::mt19937& random, std::int32_t rarity = 30)
      : config_(config), random_(random), rarity_(rarity) {
    const auto size = static_cast<std::size_t>(config.block_size);
    cells_.resize(static_cast<std::size_t>(config.kv_cache_blocks) * size);
    host_cells_.resize(static_cast<std::size_t>(config.swap_blocks) * size);
  }

  const std::map<SequenceId, Sequence>& sequences() const { return sequences_; }

  /// Reports failures through gtest.
  StepResult run(const StepPlan& plan) {
    StepResult result{plan.step, plan.epoch, {}, 100};
    for (const SequenceId id : plan.released) EXPECT_EQ(sequences_.erase(id), 1U);
    host_blocks_.clear();
    for (const auto& [id, sequence] : sequences_) {
      for (const std::int32_t block : sequence.host_blocks) {
        if (block >= 0) host_blocks_.insert(block);
      }
    }
    for (const SwapOut& swap : plan.swapped_out) take_out(swap);
    for (const SwapIn& swap : plan.swapped_in) take_in(swap);
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
    finish_swaps(plan);
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

  /// A block and one in host memory.
  struct Copy {
    BlockId block = 0;
    std::int32_t host_block = 0;
  };

  void take_out(const SwapOut& swap) {
    ASSERT_TRUE(sequences_.contains(swap.id));
    Sequence& sequence = sequences_[swap.id];
    ASSERT_FALSE(std::exchange(sequence.is_out, true)) << "it was swapped out before";
    const std::size_t each = sequence.tables[0].size();
    ASSERT_EQ(swap.host_blocks.size(), each * sequence.tables.size());
    for (std::size_t i = 0; i < swap.host_blocks.size(); ++i) {
      const std::int32_t block = swap.host_blocks[i];
      if (block < 0) continue;  // left a window; otherwise read() notices
      ASSERT_LT(static_cast<std::size_t>(block) * static_cast<std::size_t>(config_.block_size),
                host_cells_.size());
      ASSERT_TRUE(host_blocks_.insert(block).second) << "another's block in host memory";
      ASSERT_GE(sequence.tables[i / each][i % each], 0);
      copies_out_.push_back({sequence.tables[i / each][i % each], block});
    }
    for (auto& table : sequence.tables) table.clear();
    sequence.host_blocks = swap.host_blocks;
  }

  void take_in(const SwapIn& swap) {
    ASSERT_TRUE(sequences_.contains(swap.id));
    Sequence& sequence = sequences_[swap.id];
    ASSERT_TRUE(sequence.is_out);
    ASSERT_EQ(swap.host_blocks, sequence.host_blocks);
    ASSERT_EQ(swap.blocks.size(), swap.host_blocks.size());
    const std::size_t each = swap.blocks.size() / sequence.tables.size();
    for (std::size_t i = 0; i < swap.blocks.size(); ++i) {
      const BlockId block = swap.blocks[i];
      sequence.tables[i / each].push_back(block);
      ASSERT_EQ(block < 0, swap.host_blocks[i] < 0);
      if (block < 0) continue;
      ASSERT_FALSE(has(copies_out_, block)) << "it is free with the next plan";
      copies_in_.push_back({block, swap.host_blocks[i]});
    }
  }

  /// Called when the plan's steps are done, the latest moment for copies.
  void finish_swaps(const StepPlan& plan) {
    const auto size = static_cast<std::size_t>(config_.block_size);
    const auto cells = [&](std::vector<std::uint64_t>& all, std::int32_t block) {
      return std::span(all).subspan(static_cast<std::size_t>(block) * size, size);
    };
    for (const Copy& copy : std::exchange(copies_out_, {})) {
      std::ranges::copy(cells(cells_, copy.block), cells(host_cells_, copy.host_block).begin());
    }
    for (const Copy& copy : std::exchange(copies_in_, {})) {
      std::ranges::copy(cells(host_cells_, copy.host_block), cells(cells_, copy.block).begin());
    }
    for (const SwapIn& swap : plan.swapped_in) {
      sequences_[swap.id].is_out = false;
      sequences_[swap.id].host_blocks.clear();
    }
  }

  static bool has(const std::vector<Copy>& copies, BlockId block) {
    return std::ranges::any_of(copies, [&](const Copy& copy) { return copy.block == block; });
  }

  void take_blocks(const SequenceStep& step) {
    ASSERT_TRUE(sequences_.contains(step.id));
    Sequence& sequence = sequences_[step.id];
    ASSERT_FALSE(sequence.is_out) << "it is in host memory";
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

  /// Hashes of all tokens up to each position.
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
        ASSERT_FALSE(has(copies_out_, block) || has(copies_in_, block)) << "a swap needs it";
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
        ASSERT_FALSE(has(copies_in_, block)) << "position " << p << " is not there yet";
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
    row.failed = below(rarity_) == 0;
    row.tokens.assign(step.drafts.begin(), step.drafts.begin() + held);
    row.tokens.push_back(below(rarity_));
    sequence.tokens.resize(known);
    sequence.tokens.insert(sequence.tokens.end(), row.tokens.begin(), row.tokens.end());
    sequence.computed = static_cast<std::int32_t>(sequence.tokens.size()) - 1;
    if (row.failed) row.tokens.clear();
    return row;
  }

  const SchedulerConfig& config_;
  std::mt19937& random_;
  std::int32_t rarity_;
  std::vector<std::uint64_t> cells_;       ///< [blocks * block_size]
  std::vector<std::uint64_t> host_cells_;  ///< [swap_blocks * block_size]
  std::set<std::int32_t> host_blocks_;     ///< in use
  std::vector<Copy> copies_out_;           ///< of the plan being carried out
  std::vector<Copy> copies_in_;
  std::map<SequenceId, Sequence> sequences_;
};

}  // namespace troupe
