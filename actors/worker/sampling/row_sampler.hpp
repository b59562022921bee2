#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "actors/worker/sampling/row_choice.hpp"
#include "models/layers/parallel/parallel_context.hpp"
#include "models/ops/ops.hpp"
#include "models/sampler/sampler.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/sharding/sharding.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// A row of logits and its task: sample the next token, or score the known one.
struct LogitsRow {
  /// The sequence's. Like `history`, it stays valid until the row's choice is finished; for an
  /// on_device row, until it is begun.
  const SamplingParams* sampling = nullptr;
  std::int32_t position = 0;  ///< of the row's token
  bool sample = true;
  bool scores = true;        ///< find the log-probabilities that `sampling` asks for
  std::int32_t scored = -1;  ///< the known next token if `sample` is false; then it is scored
  /// For a row that samples: all tokens up to the row's own. For an on_device row the last may be
  /// -1 - r if the host does not know it yet: the token of row r of the choice begun last.
  TokenHistory history;
};

/// Samples and scores tokens from the logits of passes. The device samples the rows that it can,
/// and their ids become the next pass's input without passing through the host; the other rows'
/// logits go to the host. The ranks that share a tensor each have the logits of a share of the
/// rows, choose from these and exchange the choices. Context ranks have the same logits but for
/// rounding; all take the choices of the first.
///
/// A choice is begun, which only enqueues, and finished later: up to `max_in_flight` may be under
/// way; they finish in the order of begin. All ranks of a tensor group, and of a context group,
/// begin and finish the same rows in the same order. One thread at a time.
class RowSampler {
 public:
  static constexpr std::size_t max_in_flight = 2;

  /// Makes a sampler for passes of at most `max_rows` rows of `vocab` logits. `ops` and the
  /// collectives of `tensor` and `context` outlive it. Errors: resource_exhausted.
  static Result<RowSampler> create(Ops& ops, const RankGroup& tensor, std::int64_t max_rows,
                                   std::int64_t vocab, const RankGroup& context = {});

  /// True if the device samples this row and only its id is needed: the host can go on without
  /// knowing the token.
  bool on_device(const LogitsRow& row) const;

  /// Enqueues the choices of `rows`, at least one: the first rows of a pass that was enqueued
  /// before and has `of_rows` rows of logits. `logits` [own rows, vocab] f32, on the device: this
  /// rank's ceil_slice of those. They may be overwritten by later work. Errors: resource_exhausted;
  /// those of the collectives; internal if `max_in_flight` are under way.
  Result<void> begin(const Tensor& logits, std::span<const LogitsRow> rows, std::int64_t of_rows);

  /// The ids of the choice begun last, on the device: [rows] i32, valid for work enqueued before
  /// the next begin. -1 where the logits are not finite; undefined for rows that the host samples
  /// or that are scored.
  const Tensor& chosen() const { return chosen_; }

  /// The number of choices begun and not finished.
  std::size_t begun() const { return begun_; }

  /// Whether finish() need not wait for the device; at least one choice must be begun.
  bool is_ready() const { return ops_->stream().query(slots_[oldest_].done); }

  /// Waits for the choice that was begun first, not for later work; returns an entry per row, in
  /// order. Errors: those of the device and the collectives; internal if none is begun.
  Result<std::vector<RowChoice>> finish();

 private:
  /// The buffers of one choice from begin to finish.
  struct Slot {
    std::vector<LogitsRow> rows;
    std::int64_t of_rows = 0;             ///< rows of the pass
    std::vector<std::int32_t> wanted;     ///< number of best tokens of each row; -1: no
                                          ///< log-probabilities
    std::vector<std::int32_t> host_rows;  ///< the rows that the host samples
    StreamOps::DeviceEvent done = 0;
    DeviceTensor chosen;          ///< [max_rows] i32, on the device
    DeviceTensor ids;             ///< the same on the host
    DeviceTensor scores;          ///< [max_rows] RowScores as bytes, on the device
    DeviceTensor host_scores;     ///< the same on the host
    DeviceTensor rows_to_sample;  ///< [max_rows] SampledRow as bytes, on the host
    DeviceTensor rows_to_score;   ///< [max_rows] ScoredRow as bytes, on the host
    DeviceTensor edited;          ///< [max_edit_tokens] i32, of the rows' edits; on the device
    DeviceTensor host_edited;     ///< the same on the host
    DeviceTensor logits;          ///< [this rank's share of max_rows, vocab] f32, on the host
  };

  RowSampler(Ops& ops, const RankGroup& tensor, std::int64_t max_rows, std::int64_t vocab,
             const RankGroup& context);
  ShardOf shard() const;
  /// The rows of a choice for which a rank, by default this one, has the logits.
  static Slice rows_of(const Slot& slot, ShardOf shard);
  Slice own_rows(const Slot& slot) const { return rows_of(slot, shard()); }
  /// A rank's share of a choice's host_rows.
  static Slice host_rows_of(const Slot& slot, ShardOf shard);
  /// Fills `all`, with `width` elements for each row of the choice, on all ranks' devices.
  Result<void> share(const Slot& slot, const Tensor& all, std::int64_t width);
  Result<void> begin_on_device(const Tensor& logits, Slot& slot);
  bool add_edits(const LogitsRow& row, SampledRow& sampled);
  Result<Tensor> upload_edits(Slot& slot, const Tensor& before);
  Result<void> download_logits(const Tensor& logits, Slot& slot);
  RowChoice chosen_on_device(const Slot& slot, std::size_t i) const;
  Result<void> choose_on_host(const Slot& slot, std::vector<RowChoice>& choices);
  RowChoice choose(std::span<const float> logits, const LogitsRow& row);

  Ops* ops_;
  RankGroup tensor_;
  RankGroup context_;
  std::int64_t max_rows_;
  std::int64_t vocab_;
  std::array<Slot, max_in_flight> slots_;
  std::size_t oldest_ = 0;
  std::size_t begun_ = 0;
  Tensor chosen_;
  SamplerScratch scratch_;
  std::vector<std::byte> records_;        ///< of the rows that the host samples
  std::vector<std::int32_t> histories_;   ///< tokens of the edits of rows being begun
  std::vector<std::int32_t> lists_;       ///< of those edits, too
  std::vector<SampledRow> rows_to_edit_;  ///< those that have edits
};

}  // namespace troupe
