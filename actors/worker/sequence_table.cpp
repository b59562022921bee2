#include "actors/worker/sequence_table.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe {

SequenceTable::SequenceTable(const Model& model, std::int64_t kv_blocks, bool knows_tokens)
    : vocab_(model.config().vocab_size),
      limits_(model.limits()),
      groups_(troupe::cache_groups(model.config())),
      kv_blocks_(kv_blocks),
      knows_tokens_(knows_tokens) {}

KnownSequence* SequenceTable::find(SequenceId id) {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : &found->second;
}

Result<CacheMoves> SequenceTable::apply(const StepPlan& plan) {
  for (const SequenceId id : plan.released) {
    if (sequences_.erase(id) == 0) {
      return fail(ErrorCode::corrupt_data, "step {} releases sequence {}, which is not there",
                  plan.step, id);
    }
  }
  CacheMoves moves;
  for (const SwapOut& swap : plan.swapped_out) TROUPE_CHECK(swap_out(swap, moves.out));
  for (const SwapIn& swap : plan.swapped_in) TROUPE_CHECK(swap_in(swap, moves.in));
  for (const NewSequence& started : plan.started) TROUPE_CHECK(start(started, plan.step));
  for (const SequenceStep& step : plan.steps) {
    TROUPE_CHECK(check_step(step));
    if (!limits_.kv_policy.is_full()) TROUPE_CHECK(compact(step, moves.compactions));
    TROUPE_CHECK(check_blocks(step));
    take_blocks_and_drafts(step);
  }
  return moves;
}

Result<void> SequenceTable::swap_out(const SwapOut& swap, std::vector<SwappedBlock>& copies) {
  KnownSequence* sequence = find(swap.id);
  if (sequence == nullptr || !sequence->host_blocks.empty()) {
    return fail(ErrorCode::corrupt_data, "sequence {}, which is swapped out, is not in the cache",
                swap.id);
  }
  const std::size_t each = sequence->tables[0].size();
  if (each == 0 || swap.host_blocks.size() != each * groups_.size()) {
    return fail(ErrorCode::corrupt_data,
                "sequence {} is swapped out to {} blocks in host memory; it has {} in each of {} "
                "groups",
                swap.id, swap.host_blocks.size(), each, groups_.size());
  }
  for (std::size_t i = 0; i < swap.host_blocks.size(); ++i) {
    const std::int32_t host_block = swap.host_blocks[i];
    const std::int32_t block = sequence->tables[i / each][i % each];
    const CacheSpec& group = groups_[i / each];
    // Blocks that no position from `computed` on sees need not be kept.
    const std::int64_t end = static_cast<std::int64_t>(i % each + 1) * limits_.block_size;
    const bool may_be_missing = group.kind == CacheSpec::Kind::window &&
                                end <= std::int64_t{sequence->computed} - group.window + 1;
    if (host_block < (may_be_missing ? -1 : 0) || host_block >= host_blocks_ ||
        (host_block >= 0 && block < 0)) {
      return fail(ErrorCode::corrupt_data, "sequence {} is given block {} of {} in host memory",
                  swap.id, host_block, host_blocks_);
    }
    if (host_block >= 0) copies.push_back({block, host_block});
  }
  for (auto& table : sequence->tables) table.clear();
  sequence->host_blocks = swap.host_blocks;
  return {};
}

Result<void> SequenceTable::swap_in(const SwapIn& swap, std::vector<SwappedBlock>& copies) {
  KnownSequence* sequence = find(swap.id);
  if (sequence == nullptr || sequence->host_blocks.empty() ||
      sequence->host_blocks != swap.host_blocks || swap.blocks.size() != swap.host_blocks.size()) {
    return fail(ErrorCode::corrupt_data,
                "sequence {} is swapped in from host memory as it did not go there", swap.id);
  }
  const std::size_t each = swap.blocks.size() / groups_.size();
  for (std::size_t i = 0; i < swap.blocks.size(); ++i) {
    const std::int32_t block = swap.blocks[i], host_block = swap.host_blocks[i];
    if (block >= kv_blocks_ || (block < 0) != (host_block < 0)) {
      return fail(ErrorCode::corrupt_data, "sequence {} is swapped in to block {} of {}", swap.id,
                  block, kv_blocks_);
    }
    sequence->tables[i / each].push_back(std::max(block, -1));
    if (block >= 0) copies.push_back({block, host_block});
  }
  sequence->host_blocks.clear();
  return {};
}

Result<void> SequenceTable::start(const NewSequence& started, std::uint64_t step) {
  const auto known = std::ssize(started.tokens);
  for (const std::int32_t token : started.tokens) {
    if (token < 0 || token >= vocab_) {
      return fail(ErrorCode::corrupt_data, "step {}: sequence {} holds token id {} of {}", step,
                  started.id, token, vocab_);
    }
  }
  if (started.prompt_tokens < 0 || started.prompt_tokens > known || started.cached_tokens < 0 ||
      started.cached_tokens >= known) {
    return fail(ErrorCode::corrupt_data,
                "step {}: sequence {} has {} tokens, {} of them a prompt and {} cached", step,
                started.id, known, started.prompt_tokens, started.cached_tokens);
  }
  KnownSequence sequence;
  sequence.tokens = started.tokens;
  sequence.prompt_tokens = started.prompt_tokens;
  sequence.computed = started.cached_tokens;
  sequence.sampling = started.sampling;
  sequence.tables.resize(groups_.size());
  sequence.start = ++starts_;
  if (!sequences_.try_emplace(started.id, std::move(sequence)).second) {
    return fail(ErrorCode::corrupt_data, "step {} starts sequence {} a second time", step,
                started.id);
  }
  return {};
}

Result<void> SequenceTable::check_step(const SequenceStep& step) const {
  const auto found = sequences_.find(step.id);
  if (found == sequences_.end()) {
    return fail(ErrorCode::corrupt_data, "sequence {} was never started", step.id);
  }
  const KnownSequence& sequence = found->second;
  if (!sequence.host_blocks.empty()) {
    return fail(ErrorCode::corrupt_data, "sequence {} is swapped out", step.id);
  }
  const auto drafts = std::ssize(step.drafts);
  const std::int64_t end = std::int64_t{step.first_position} + step.tokens;
  const std::int64_t known =
      (knows_tokens_ ? std::ssize(sequence.tokens)
                     : std::max<std::int64_t>(std::ssize(sequence.tokens), end - drafts)) +
      drafts;
  if (step.tokens <= drafts || step.first_position < 0 || step.first_position > sequence.computed ||
      end > known || end > limits_.max_positions || (step.sample && end != known) ||
      (drafts > 0 && !step.sample)) {
    return fail(ErrorCode::corrupt_data,
                "sequence {} cannot compute positions [{}, {}), {} of them drafts: {} are computed "
                "and {} known",
                step.id, step.first_position, end, drafts, sequence.computed, known);
  }
  for (const std::int32_t token : step.drafts) {
    if (token < 0 || token >= vocab_) {
      return fail(ErrorCode::corrupt_data, "sequence {} is given draft {} of {}", step.id, token,
                  vocab_);
    }
  }
  return {};
}

Result<void> SequenceTable::compact(const SequenceStep& step,
                                    std::vector<SequenceCompaction>& compactions) {
  KnownSequence& sequence = sequences_.at(step.id);
  const KvPolicy& policy = limits_.kv_policy;
  const std::int32_t first = step.first_position;
  if (first != sequence.computed ||
      step.tokens > policy.next_drop(first, sequence.prompt_tokens) - first) {
    return fail(ErrorCode::corrupt_data,
                "sequence {} cannot compute {} positions from {} at once under {}: {} are computed",
                step.id, step.tokens, first, to_string(policy.kind), sequence.computed);
  }
  const std::int32_t dropped = policy.dropped_before(first, sequence.prompt_tokens);
  if (dropped == sequence.dropped) return {};
  std::vector<std::int32_t>& table = sequence.tables.front();
  compactions.push_back({table, first - sequence.dropped, first - dropped});
  sequence.dropped = dropped;
  // The blocks that the rest and this step's rows need stay.
  const std::int32_t entries = first + step.tokens - dropped;
  const std::int32_t blocks = (entries + limits_.block_size - 1) / limits_.block_size;
  if (std::cmp_less(blocks, table.size())) table.resize(static_cast<std::size_t>(blocks));
  return {};
}

RowPlace SequenceTable::place_of(const KnownSequence& sequence, std::int32_t position) const {
  const KvPolicy& policy = limits_.kv_policy;
  const std::int32_t entry = position - sequence.dropped;
  return {.entry = entry,
          .position = policy.rotates_by_entry() ? entry : position,
          .observed = policy.observes(position, sequence.prompt_tokens)};
}

Result<void> SequenceTable::check_blocks(const SequenceStep& step) const {
  const std::size_t groups = groups_.size();
  const std::size_t each = step.new_blocks.size() / groups;
  const std::int64_t end =
      std::int64_t{step.first_position} + step.tokens - sequences_.at(step.id).dropped;
  const auto room = static_cast<std::int64_t>(sequences_.at(step.id).tables[0].size() + each) *
                    limits_.block_size;
  if (step.new_blocks.size() % groups != 0 || end > room) {
    return fail(ErrorCode::corrupt_data,
                "sequence {} with {} new blocks in {} groups has room for {} positions, not {}",
                step.id, step.new_blocks.size(), groups, room, end);
  }
  // Only blocks that left the window before this step may be missing.
  const std::size_t known = sequences_.at(step.id).tables[0].size();
  const auto first_written = static_cast<std::size_t>(step.first_position / limits_.block_size);
  for (std::size_t i = 0; i < step.new_blocks.size(); ++i) {
    const bool may_be_missing =
        groups_[i / each].kind == CacheSpec::Kind::window && known + i % each < first_written;
    const std::int32_t block = step.new_blocks[i];
    if (block < (may_be_missing ? -1 : 0) || block >= kv_blocks_) {
      return fail(ErrorCode::corrupt_data, "sequence {} is given block {} of {}", step.id, block,
                  kv_blocks_);
    }
  }
  return {};
}

void SequenceTable::take_blocks_and_drafts(const SequenceStep& step) {
  KnownSequence& sequence = sequences_.at(step.id);
  const auto each = static_cast<std::ptrdiff_t>(step.new_blocks.size() / groups_.size());
  auto next = step.new_blocks.begin();
  for (auto& table : sequence.tables) {
    table.insert(table.end(), next, next + each);
    next += each;
  }
  const auto end =
      static_cast<std::size_t>(step.first_position) + static_cast<std::size_t>(step.tokens);
  const std::size_t known = end - step.drafts.size();
  if (sequence.tokens.size() < known) sequence.tokens.resize(known, -1);
  sequence.tokens.insert(sequence.tokens.end(), step.drafts.begin(), step.drafts.end());
}

}  // namespace troupe
