#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "models/model/model.hpp"
#include "models/ops/ops.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The input of one forward pass, gathered row by row on the host and then uploaded. Buffers are
/// allocated once. One thread at a time.
class Pass {
 public:
  /// For passes of a model of `limits` whose cache has `kv_blocks` blocks and `groups` groups.
  /// Errors: resource_exhausted.
  static Result<Pass> create(Ops& ops, const ModelLimits& limits, std::int64_t kv_blocks,
                             std::size_t groups);

  using Tables = std::vector<std::vector<std::int32_t>>;  ///< [groups][blocks]

  /// Whether the tables' first `blocks` entries fit; a pass without rows takes any sequence's.
  bool has_room_for_tables(std::size_t blocks) const;
  bool has_room_for_row() const {
    return static_cast<std::int64_t>(ids_.size()) < limits_.max_batch_tokens;
  }
  bool has_room_for_head() const {
    return static_cast<std::int64_t>(head_rows_.size()) < limits_.max_head_rows;
  }

  /// The rows that follow are of a sequence with these tables, of which the first `blocks` entries
  /// are used, from position `first_position` on.
  void begin_sequence(const Tables& tables, std::size_t blocks, std::int32_t first_position);
  /// A row; `wants_logits` makes it the next of the head's rows.
  void add_row(const Tables& tables, std::int32_t token, std::int32_t position, bool wants_logits);

  bool empty() const { return ids_.empty(); }
  std::int64_t head_rows() const { return static_cast<std::int64_t>(head_rows_.size()); }

  /// Uploads all; the batch is valid until clear().
  ForwardBatch upload();
  void clear();

 private:
  Pass(Ops& ops, const ModelLimits& limits, std::size_t groups);

  struct Group {
    std::vector<std::int32_t> slots;
    std::vector<std::int32_t> tables;
    std::vector<SequenceSpan> spans;
    DeviceTensor device_slots;
    DeviceTensor device_tables;
  };

  Ops* ops_;
  ModelLimits limits_;
  std::int64_t table_room_ = 0;  ///< entries of each group's tables
  std::uint64_t uploads_ = 0;
  std::vector<std::int32_t> ids_, positions_, head_rows_;
  DeviceTensor device_ids_, device_positions_, device_heads_;
  std::vector<Group> groups_;
  std::vector<AttentionBatch> attention_;
};

}  // namespace troupe
