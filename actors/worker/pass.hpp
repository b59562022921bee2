#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "models/layers/parallel/context_split.hpp"
#include "models/model/model.hpp"
#include "models/ops/ops.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The place of a row's key in the cache of its sequence, and how its attention is computed.
struct RowPlace {
  std::int32_t entry = 0;     ///< of the sequence's cache: the position, less the tokens dropped
  std::int32_t position = 0;  ///< by which query and key are rotated
  bool observed = false;      ///< its attention counts (AttentionBatch::observed_rows)
};

/// The input of one forward pass, gathered row by row on the host and then uploaded, while the
/// device may still be busy with the pass before. Buffers are allocated once. One thread at a time.
class Pass {
 public:
  /// Makes a Pass for a model of `limits` whose cache has `kv_blocks` blocks and `groups` groups.
  /// `context_ranks`: the most that divide_rows divides over. Errors: resource_exhausted.
  static Result<Pass> create(Ops& ops, const ModelLimits& limits, std::int64_t kv_blocks,
                             std::size_t groups, int context_ranks = 1);

  using Tables = std::vector<std::vector<std::int32_t>>;  ///< [groups][blocks]

  /// True if the tables' first `blocks` entries fit; a pass without rows takes any sequence's.
  bool has_room_for_tables(std::size_t blocks) const;
  bool has_room_for_row() const { return rows() < limits_.max_batch_tokens; }
  bool has_room_for_head() const { return head_rows() < limits_.max_head_rows; }

  /// Begins the rows of a sequence with these tables, of which the first `blocks` blocks are used;
  /// its first row is at entry `first_entry` of its cache.
  void begin_sequence(const Tables& tables, std::size_t blocks, std::int32_t first_entry);
  /// Adds a row, at the entry after the last one's; `wants_logits` adds it to the head's rows, too.
  /// A `token` below 0 stands for one that SamplingOps::resolve_sampled_ids fills in.
  void add_row(const Tables& tables, std::int32_t token, const RowPlace& place, bool wants_logits);
  /// The same where the cache has all tokens.
  void add_row(const Tables& tables, std::int32_t token, std::int32_t position, bool wants_logits) {
    add_row(tables, token, RowPlace{position, position}, wants_logits);
  }

  bool empty() const { return ids_.empty(); }
  std::int64_t rows() const { return static_cast<std::int64_t>(ids_.size()); }
  std::int64_t head_rows() const { return static_cast<std::int64_t>(head_rows_.size()); }
  /// True if some tokens are below 0.
  bool awaits_tokens() const { return awaits_tokens_; }

  /// If each sequence has one row and all need logits: adds padding sequences of one row until the
  /// pass has one of a few lengths, and lets it be captured. They write to `block` of the cache,
  /// which nothing else does. Otherwise does nothing.
  void pad_for_recording(std::int32_t block);
  /// The length that pad_for_recording would reach; 0 if it would do nothing.
  std::int64_t recorded_rows() const;
  /// The most rows that this pass could be padded to.
  std::int64_t padded_room() const;
  /// Adds padding sequences of one row until there are `rows`, at most padded_room(), as
  /// pad_for_recording does, also to a pass without rows.
  void pad_to(std::int64_t rows, std::int32_t block);

  /// Divides the rows over context ranks. `split`: of as many rows. Call after the last row; not
  /// for a pass that is captured.
  void divide_rows(const ContextSplit& split);

  /// True if the pass will be captured.
  bool graph_captured() const { return graph_captured_; }

  /// Enqueues the upload of all inputs; the batch is valid until the next upload.
  Result<ForwardBatch> upload();
  void clear();

 private:
  Pass(Ops& ops, const ModelLimits& limits, std::size_t groups);

  struct Group {
    std::vector<std::int32_t> slots;
    std::vector<std::int32_t> tables;
    std::vector<SequenceSpan> spans;
    std::vector<std::int32_t> head_slots;
    std::vector<SequenceSpan> head_spans;  ///< of the head rows, if the last layer may take these
    DeviceTensor device_tables;
  };
  /// The memory that the device copies from: not rewritten before it has.
  struct Staging {
    DeviceTensor inputs;               ///< all but the tables
    std::vector<DeviceTensor> tables;  ///< of each group
    StreamOps::DeviceEvent copied = 0;
    bool used = false;
  };

  bool is_one_row_a_sequence() const;
  /// Sets what the groups know of the head rows.
  void describe_head_rows();

  Ops* ops_;
  ModelLimits limits_;
  std::int64_t table_room_ = 0;  ///< entries of each group's tables before rows are divided
  std::vector<std::int32_t> ids_, positions_, head_rows_, head_positions_;
  std::vector<Group> groups_;
  std::vector<std::int32_t> observed_rows_;  ///< of each sequence
  bool observes_ = false;                    ///< true if some are observed
  bool awaits_tokens_ = false;
  bool graph_captured_ = false;
  std::optional<ContextSplit> split_;  ///< set if the rows are divided
  DeviceTensor inputs_;
  std::array<Staging, 2> staging_;
  std::size_t turn_ = 0;
  std::vector<AttentionBatch> attention_, head_attention_;
};

/// The padded length at which passes of `rows` rows are captured: one of a few dozen.
std::int64_t graph_rows(std::int64_t rows);

}  // namespace troupe
