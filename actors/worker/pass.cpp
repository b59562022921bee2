#include "actors/worker/pass.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "models/layers/parallel/spans_of_rows.hpp"

namespace troupe {
namespace {

std::span<const std::int32_t> numbers(const std::vector<SequenceSpan>& spans) {
  return {reinterpret_cast<const std::int32_t*>(spans.data()), spans.size() * numbers_of_span};
}

}  // namespace

std::int64_t graph_rows(std::int64_t rows) {
  if (rows <= 8) return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows)));
  const std::int64_t unit = rows <= 32 ? 8 : rows <= 64 ? 16 : rows <= 256 ? 32 : 128;
  return (rows + unit - 1) / unit * unit;
}

Pass::Pass(Ops& ops, const ModelLimits& limits, std::size_t groups)
    : ops_(&ops), limits_(limits), groups_(groups) {}

Result<Pass> Pass::create(Ops& ops, const ModelLimits& limits, std::int64_t kv_blocks,
                          std::size_t groups, int context_ranks) {
  Pass pass(ops, limits, groups);
  // If sequences share no blocks, all tables fit; where a window has left blocks behind, a table
  // may be longer than there are blocks. Sequences that share prefixes have more entries than
  // there are blocks.
  constexpr std::int64_t shared_entries = std::int64_t{1} << 20;
  const std::int64_t longest = (limits.max_positions + limits.block_size - 1) / limits.block_size;
  pass.table_room_ =
      std::max(kv_blocks + longest, std::min(limits.max_head_rows * longest, shared_entries));
  const std::int64_t rows = limits.max_batch_tokens;
  const std::int64_t numbers_of_row = static_cast<std::int64_t>(groups) * (1 + numbers_of_span);
  const Shape inputs{(3 + numbers_of_row) * (rows + limits.max_head_rows)};
  const std::int64_t copies =
      context_ranks > 1 ? ContextSplit::most_added_entries(context_ranks, longest) : 0;
  const Shape tables{pass.table_room_ + copies};
  TROUPE_TRY(pass.inputs_, ops.memory().allocate(DType::i32, inputs));
  for (Group& group : pass.groups_) {
    TROUPE_TRY(group.device_tables, ops.memory().allocate(DType::i32, tables));
  }
  for (Staging& staging : pass.staging_) {
    TROUPE_TRY(staging.inputs, ops.memory().allocate_host(DType::i32, inputs));
    staging.tables.resize(groups);
    for (DeviceTensor& table : staging.tables) {
      TROUPE_TRY(table, ops.memory().allocate_host(DType::i32, tables));
    }
  }
  return pass;
}

bool Pass::has_room_for_tables(std::size_t blocks) const {
  return empty() ||
         static_cast<std::int64_t>(groups_.front().tables.size() + blocks) <= table_room_;
}

void Pass::begin_sequence(const Tables& tables, std::size_t blocks, std::int32_t first_entry) {
  observed_rows_.push_back(0);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    group.spans.push_back({.first_row = static_cast<std::int32_t>(ids_.size()),
                           .rows = 0,
                           .first_position = first_entry,
                           .block_offset = static_cast<std::int32_t>(group.tables.size())});
    group.tables.insert(group.tables.end(), tables[g].begin(),
                        tables[g].begin() + static_cast<std::ptrdiff_t>(blocks));
  }
}

void Pass::add_row(const Tables& tables, std::int32_t token, const RowPlace& place,
                   bool wants_logits) {
  if (wants_logits) head_rows_.push_back(static_cast<std::int32_t>(ids_.size()));
  ids_.push_back(token);
  awaits_tokens_ = awaits_tokens_ || token < 0;
  positions_.push_back(place.position);
  if (place.observed) {
    ++observed_rows_.back();
    observes_ = true;
  }
  const auto block = static_cast<std::size_t>(place.entry / limits_.block_size);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    groups_[g].slots.push_back(tables[g][block] * limits_.block_size +
                               place.entry % limits_.block_size);
    ++groups_[g].spans.back().rows;
  }
}

bool Pass::is_one_row_a_sequence() const {
  return groups_.front().spans.size() == ids_.size() && head_rows_.size() == ids_.size();
}

std::int64_t Pass::padded_room() const {
  const auto used = static_cast<std::int64_t>(groups_.front().tables.size());
  return std::min({limits_.max_batch_tokens, limits_.max_head_rows, rows() + table_room_ - used});
}

std::int64_t Pass::recorded_rows() const {
  if (empty() || !is_one_row_a_sequence()) return 0;
  // A recorded pass observes all rows or none.
  if (observes_ && !limits_.kv_policy.observes_every_row()) return 0;
  const std::int64_t wanted = graph_rows(rows());
  return wanted <= padded_room() ? wanted : 0;
}

void Pass::pad_for_recording(std::int32_t block) {
  if (const std::int64_t wanted = recorded_rows(); wanted > 0) pad_to(wanted, block);
}

void Pass::pad_to(std::int64_t wanted, std::int32_t block) {
  const Tables tables(groups_.size(), {block});
  const std::int32_t token = empty() ? 0 : ids_.front();  // goes to experts that are active anyway
  while (rows() < wanted) {
    begin_sequence(tables, 1, 0);
    add_row(tables, token, 0, true);
  }
  graph_captured_ = true;
}

void Pass::divide_rows(const ContextSplit& split) {
  split_ = split;
  if (!split.reorders()) return;
  ids_ = split_->reorder(ids_);
  positions_ = split_->reorder(positions_);
  for (std::int32_t& row : head_rows_) row = split_->place_of(row);
  for (Group& group : groups_) {
    group.slots = split_->reorder(group.slots);
    auto [spans, tables] = split_->reorder(group.spans, group.tables);
    group.spans = std::move(spans);
    group.tables = std::move(tables);
  }
}

void Pass::describe_head_rows() {
  head_positions_.clear();
  // Of a captured pass all rows are head rows; one that is divided goes whole through all layers.
  const bool are_all = head_rows_.size() == ids_.size();
  for (Group& group : groups_) {
    group.head_slots.clear();
    group.head_spans.clear();
    if (are_all || split_) continue;
    group.head_spans = spans_of_single_rows(group.spans, head_rows_);
    for (const std::int32_t row : head_rows_) {
      group.head_slots.push_back(group.slots[static_cast<std::size_t>(row)]);
    }
  }
  if (are_all || split_) return;
  for (const std::int32_t row : head_rows_) {
    head_positions_.push_back(positions_[static_cast<std::size_t>(row)]);
  }
}

Result<ForwardBatch> Pass::upload() {
  describe_head_rows();
  Staging& staging = staging_[turn_++ % staging_.size()];
  if (staging.used) TROUPE_CHECK(ops_->stream().wait(staging.copied));
  std::int64_t next = 0;
  const auto stage = [&](std::span<const std::int32_t> values) {
    const auto count = static_cast<std::int64_t>(values.size());
    std::ranges::copy(values, staging.inputs->as<std::int32_t>() + next);
    const Tensor place = inputs_->rows(next, count);
    next += count;
    return place;
  };
  ForwardBatch batch;
  batch.graph_captured = graph_captured_;
  if (split_) batch.rows_per_context_rank = split_->rows_per_rank();
  batch.token_ids = stage(ids_);
  batch.head_rows = stage(head_rows_);
  const Tensor positions = stage(positions_);
  const Tensor head_positions = stage(head_positions_);
  attention_.clear();
  head_attention_.clear();
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    const auto entries = static_cast<std::int64_t>(group.tables.size());
    std::ranges::copy(group.tables, staging.tables[g]->as<std::int32_t>());
    ops_->memory().upload(staging.tables[g]->rows(0, entries),
                          group.device_tables->rows(0, entries));
    const Tensor slots = stage(group.slots);
    const Tensor spans = stage(numbers(group.spans));
    const auto sequences = static_cast<std::int64_t>(group.spans.size());
    std::span<const std::int32_t> tables;
    if (limits_.cascade_attention) tables = group.tables;
    attention_.push_back({.positions = positions,
                          .kv_slots = slots,
                          .block_tables = group.device_tables->rows(0, entries),
                          .sequences = group.spans,
                          .block_size = limits_.block_size,
                          .spans = spans.reshaped({sequences, numbers_of_span}),
                          .graph_captured = graph_captured_,
                          .host_block_tables = tables});
    if (observes_) {
      attention_.back().observed_rows = observed_rows_;
      attention_.back().device_observed_rows = stage(observed_rows_);
    }
    if (head_positions_.empty()) continue;
    const Tensor head_slots = stage(group.head_slots);
    const Tensor head_spans = stage(numbers(group.head_spans));
    const auto heads = static_cast<std::int64_t>(group.head_spans.size());
    head_attention_.push_back({.positions = head_positions,
                               .kv_slots = head_slots,
                               .block_tables = attention_.back().block_tables,
                               .sequences = group.head_spans,
                               .block_size = limits_.block_size,
                               .spans = head_spans.reshaped({heads, numbers_of_span})});
  }
  ops_->memory().upload(staging.inputs->rows(0, next), inputs_->rows(0, next));
  staging.copied = ops_->stream().record_event();
  staging.used = true;
  batch.attention = attention_;
  batch.head_attention = head_attention_;
  return batch;
}

void Pass::clear() {
  ids_.clear();
  positions_.clear();
  head_rows_.clear();
  observed_rows_.clear();
  observes_ = false;
  awaits_tokens_ = false;
  graph_captured_ = false;
  split_.reset();
  for (Group& group : groups_) {
    group.slots.clear();
    group.tables.clear();
    group.spans.clear();
  }
}

}  // namespace troupe
