#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "parallel/collectives/collectives.hpp"
#include "parallel/device/tensor.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// How a model's experts are distributed over the ranks of a dispatch group (Mesh::dispatch_group).
/// Rank part * expert_ranks + e of the group holds part `part` of the experts [e * experts /
/// expert_ranks, (e + 1) * experts / expert_ranks).
struct ExpertLayout {
  std::int64_t experts = 1;     ///< of the model; expert_ranks divides it
  int expert_ranks = 1;         ///< ranks over which whole experts are distributed
  int parts = 1;                ///< of each expert; parts * expert_ranks is the group's size
  std::int64_t top_k = 1;       ///< experts that a token chooses, all different; at most `experts`
  std::int64_t max_tokens = 1;  ///< sent by one rank of the group in one exchange, at most

  std::int64_t local_experts() const { return experts / expert_ranks; }
  /// The most rows that a rank sends: each choice of a token to every part of its expert.
  std::int64_t max_sent_rows() const { return max_tokens * top_k * parts; }
  /// The most rows that a rank receives: every rank's tokens, as often as they can choose it.
  std::int64_t max_received_rows() const;
};

/// Dispatches tokens to the ranks that hold their experts and combines the results. An assignment
/// is a token with one of its choices, numbered token * top_k + choice. For every assignment one
/// row goes to each rank that holds a part of its expert, and one row comes back; nothing else is
/// sent but the counts. A token's rows are not merged if two of its experts share a rank: so counts
/// alone tell the receiver which expert a row is for, and both directions carry the same rows.
///
/// Per exchange, on every rank of the group, with or without tokens: plan, dispatch, combine.
/// Sorting is done on the host. Nothing is allocated after create().
///
/// Errors of all calls: those of Collectives. One thread at a time.
class ExpertExchange {
 public:
  /// Uses one group's collectives, which outlive the object: `host` exchanges counts and `device`
  /// rows; they may be the same. Errors: invalid_argument if its size is not the layout's.
  static Result<ExpertExchange> create(Collectives& host, Collectives& device,
                                       const ExpertLayout& layout);

  const ExpertLayout& layout() const { return layout_; }

  /// Sorts the assignments of `ids` [tokens, top_k] i32 (host memory; expert numbers) and announces
  /// to every rank how many rows it will get. What follows is valid until the next plan(). Errors
  /// also: invalid_argument if there are more than max_tokens, an id is out of range, or a rank
  /// announces more rows than the layout allows.
  Result<void> plan(const Tensor& ids);

  std::int64_t sent_rows() const { return sent_rows_; }
  std::int64_t received_rows() const { return received_rows_; }

  /// The token of each row to be sent, by part, then expert, then token. [sent_rows] i32, host.
  Tensor sent_tokens() const { return sent_tokens_->rows(0, sent_rows_); }
  /// The received rows sorted by local expert: expert e has the sorted rows
  /// [offsets[e], offsets[e + 1]), and sorted row i is received row sorted_rows[i]. Host memory.
  Tensor offsets() const { return offsets_; }                                   // [local + 1] i32
  Tensor sorted_rows() const { return sorted_rows_->rows(0, received_rows_); }  // i32
  /// The row of each assignment within a part's results. Results come back in the order of
  /// sent_tokens(): those of part p are rows [p * assignments, (p + 1) * assignments).
  /// [assignments] i32, host.
  Tensor rows_of_assignments() const { return rows_of_assignments_->rows(0, assignments_); }

  /// Sends `rows` [sent_rows, ...] and receives `received` [received_rows, ...]; any dtype. Tensors
  /// of this and of combine are in the memory of `device`.
  Result<void> dispatch(const Tensor& rows, const Tensor& received);
  /// Sends `results` [received_rows, ...], one for each received row, back to the rows' senders:
  /// `returned` [sent_rows, ...].
  Result<void> combine(const Tensor& results, const Tensor& returned);

 private:
  ExpertExchange(Collectives& host, Collectives& device, const ExpertLayout& layout);
  Result<void> sort_assignments(std::span<const std::int32_t> ids);
  void count_sent();
  Result<void> count_received();
  void sort_received();

  Collectives* host_;
  Collectives* device_;
  ExpertLayout layout_;
  std::int64_t assignments_ = 0;
  std::int64_t sent_rows_ = 0;
  std::int64_t received_rows_ = 0;
  std::vector<std::int32_t> expert_begin_;  // [experts + 1]: where each expert's assignments begin,
                                            // sorted
  HostTensor sent_tokens_;                  // [max_sent_rows] i32
  HostTensor rows_of_assignments_;          // [max_tokens * top_k] i32
  HostTensor sent_counts_;                  // [ranks, local experts] i32: to each rank
  HostTensor received_counts_;              // [ranks, local experts] i32: from each rank
  HostTensor offsets_;                      // [local experts + 1] i32
  HostTensor sorted_rows_;                  // [max_received_rows] i32
  std::vector<std::int64_t> one_row_;       // [ranks]: 1 each
  std::vector<std::int64_t> rows_to_;       // [ranks]
  std::vector<std::int64_t> rows_from_;     // [ranks]
};

}  // namespace troupe
