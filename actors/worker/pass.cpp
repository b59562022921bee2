#include "actors/worker/pass.hpp"

#include <algorithm>

namespace troupe {

Pass::Pass(Ops& ops, const ModelLimits& limits, std::size_t groups)
    : ops_(&ops), limits_(limits), groups_(groups) {}

Result<Pass> Pass::create(Ops& ops, const ModelLimits& limits, std::int64_t kv_blocks,
                          std::size_t groups) {
  Pass pass(ops, limits, groups);
  // Of sequences that share no blocks all tables fit; where a window leaves blocks behind, a table
  // may be longer than there are blocks.
  pass.table_room_ = kv_blocks + (limits.max_positions + limits.block_size - 1) / limits.block_size;
  const auto allocate = [&](std::int64_t entries) {
    return ops.allocate(DType::i32, Shape{entries});
  };
  TROUPE_TRY(pass.device_ids_, allocate(limits.max_batch_tokens));
  TROUPE_TRY(pass.device_positions_, allocate(limits.max_batch_tokens));
  TROUPE_TRY(pass.device_heads_, allocate(limits.max_head_rows));
  for (Group& group : pass.groups_) {
    TROUPE_TRY(group.device_slots, allocate(limits.max_batch_tokens));
    TROUPE_TRY(group.device_tables, allocate(pass.table_room_));
  }
  return pass;
}

bool Pass::has_room_for_tables(std::size_t blocks) const {
  return empty() ||
         static_cast<std::int64_t>(groups_.front().tables.size() + blocks) <= table_room_;
}

void Pass::begin_sequence(const Tables& tables, std::size_t blocks, std::int32_t first_position) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    group.spans.push_back({.first_row = static_cast<std::int32_t>(ids_.size()),
                           .rows = 0,
                           .first_position = first_position,
                           .block_offset = static_cast<std::int32_t>(group.tables.size())});
    group.tables.insert(group.tables.end(), tables[g].begin(),
                        tables[g].begin() + static_cast<std::ptrdiff_t>(blocks));
  }
}

void Pass::add_row(const Tables& tables, std::int32_t token, std::int32_t position,
                   bool wants_logits) {
  if (wants_logits) head_rows_.push_back(static_cast<std::int32_t>(ids_.size()));
  ids_.push_back(token);
  positions_.push_back(position);
  const auto block = static_cast<std::size_t>(position / limits_.block_size);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    groups_[g].slots.push_back(tables[g][block] * limits_.block_size +
                               position % limits_.block_size);
    ++groups_[g].spans.back().rows;
  }
}

ForwardBatch Pass::upload() {
  const auto upload = [this](std::vector<std::int32_t>& from, const DeviceTensor& to) {
    const Shape shape{static_cast<std::int64_t>(from.size())};
    const Tensor target = to.view().rows(0, shape[0]);
    ops_->upload(Tensor(from.data(), DType::i32, shape), target);
    return target;
  };
  ForwardBatch batch;
  batch.token_ids = upload(ids_, device_ids_);
  batch.head_rows = upload(head_rows_, device_heads_);
  const Tensor positions = upload(positions_, device_positions_);
  attention_.clear();
  ++uploads_;
  for (Group& group : groups_) {
    attention_.push_back({.positions = positions,
                          .kv_slots = upload(group.slots, group.device_slots),
                          .block_tables = upload(group.tables, group.device_tables),
                          .sequences = group.spans,
                          .block_size = limits_.block_size,
                          .pass = uploads_});
  }
  batch.attention = attention_;
  return batch;
}

void Pass::clear() {
  ids_.clear();
  positions_.clear();
  head_rows_.clear();
  for (Group& group : groups_) {
    group.slots.clear();
    group.tables.clear();
    group.spans.clear();
  }
}

}  // namespace troupe
