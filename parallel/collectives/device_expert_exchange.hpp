#pragma once

#include <cstdint>

#include "parallel/device/tensor.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// What the ranks of a group exchange. The same on all of them.
struct DeviceExpertExchangeLayout {
  std::int64_t max_rows = 1;       ///< that one rank gives in one exchange
  std::int64_t width = 1;          ///< elements of a row
  std::int64_t top_k = 1;          ///< experts that a row goes to, all different
  std::int64_t local_experts = 1;  ///< rank r has those from r * local_experts on
};

/// Takes rows to the ranks that hold their experts, and what those make of them back, by kernels
/// that write into each other's memory. A row goes once to every rank that has any of its experts,
/// with all its choices, and comes back as the weighted sum of what that rank's experts made of it,
/// rounded to the rows' dtype; its owner adds these by rank. Who gets how many is known on the
/// devices alone, so calls only enqueue and can be recorded (Ops::capture), by each rank with its
/// own number of rows.
///
/// Per exchange, on every rank of the group, with rows or without: dispatch, what the experts do,
/// combine. Errors: those of Collectives. One thread at a time.
class DeviceExpertExchange {
 public:
  virtual ~DeviceExpertExchange() = default;

  const DeviceExpertExchangeLayout& layout() const { return layout_; }
  int ranks() const { return static_cast<int>(received_counts_.elements()); }
  /// Places for rows, of all ranks.
  std::int64_t capacity() const { return ranks() * layout_.max_rows; }

  /// Gives x [rows, width] bf16 with the experts `ids` [rows, top_k] i32 and their `weights` f32;
  /// rows may be 0.
  virtual Result<void> dispatch(const Tensor& x, const Tensor& ids, const Tensor& weights) = 0;

  /// What has come: row i of rank r is at place r * max_rows + i, for i below received_counts[r].
  /// Of rows that have no expert here only ids and weights are there. Valid until combine.
  const Tensor& received() const { return received_; }                ///< [capacity, width] bf16
  const Tensor& received_ids() const { return received_ids_; }        ///< [capacity, top_k] i32
  const Tensor& received_counts() const { return received_counts_; }  ///< [ranks] i32

  /// `results` [capacity * top_k, width] bf16: for choice c of place p, if that expert is here, row
  /// p * top_k + c. out [the rows given, width], f32 or bf16: their sums, by rank, of each rank in
  /// the order of choice.
  virtual Result<void> combine(const Tensor& results, const Tensor& out) = 0;

  /// How many rows all ranks are going to give, as near as the host knows. What is fastest is
  /// chosen by it.
  void expect(std::int64_t rows) { expected_rows_ = rows; }
  std::int64_t expected_rows() const { return expected_rows_; }

 protected:
  explicit DeviceExpertExchange(const DeviceExpertExchangeLayout& layout) : layout_(layout) {}

  Tensor received_, received_ids_, received_counts_;

 private:
  DeviceExpertExchangeLayout layout_;
  std::int64_t expected_rows_ = 1;
};

}  // namespace troupe
