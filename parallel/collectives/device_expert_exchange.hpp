#pragma once

#include <cstdint>

#include "parallel/device/tensor.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Bounds of an expert exchange; the same on all ranks but for takes_codes.
struct DeviceExpertExchangeLayout {
  std::int64_t max_rows = 1;       ///< dispatched by one rank in one exchange
  std::int64_t width = 1;          ///< elements of a row
  std::int64_t top_k = 1;          ///< experts that a row is routed to, all different
  std::int64_t local_experts = 1;  ///< rank r has experts r * local_experts and up
  bool takes_codes = false;        ///< this rank's device can multiply rows of 8-bit codes
};

/// Dispatches rows to the ranks that hold their experts, and combines the results, by kernels that
/// write into each other's memory. A row is sent once to every rank that has any of its experts,
/// with all its choices; the rank returns the weighted sum of its experts' results, rounded to
/// bf16, and the row's owner adds these by rank. Row counts are known on the devices only,
/// so calls only enqueue and can be captured (Ops::capture), by each rank with its own number of
/// rows.
///
/// Per exchange, on every rank of the group, with or without rows: dispatch, the experts'
/// computation, combine. Errors: those of Collectives. One thread at a time.
class DeviceExpertExchange {
 public:
  virtual ~DeviceExpertExchange() = default;

  const DeviceExpertExchangeLayout& layout() const { return layout_; }
  int ranks() const { return static_cast<int>(received_counts_.elements()); }
  /// True if the devices of all ranks can multiply codes, and `width` allows to dispatch them: the
  /// same on all ranks, as they must dispatch codes alike.
  bool takes_codes() const { return takes_codes_; }
  /// Rows that can be received from all ranks.
  std::int64_t capacity() const { return ranks() * layout_.max_rows; }

  /// Dispatches x [rows, width] with the experts `ids` [rows, top_k] i32 and their `weights` f32;
  /// rows may be 0. x is bf16 and `scales` empty, or x is 8-bit codes (u8; width is a multiple of
  /// 16) and `scales` [rows] f32: on all ranks alike, or the devices fail.
  virtual Result<void> dispatch(const Tensor& x, const Tensor& scales, const Tensor& ids,
                                const Tensor& weights) = 0;

  /// The received rows: row i of rank r is at r * max_rows + i, for i below received_counts[r]. For
  /// rows without an expert here only ids, weights and scales are filled in. Valid until combine.
  /// Codes share the memory of bf16 rows.
  const Tensor& received() const { return received_; }                ///< [capacity, width] bf16
  const Tensor& received_codes() const { return received_codes_; }    ///< [capacity, width] u8
  const Tensor& received_scales() const { return received_scales_; }  ///< of codes: [capacity] f32
  const Tensor& received_ids() const { return received_ids_; }        ///< [capacity, top_k] i32
  const Tensor& received_counts() const { return received_counts_; }  ///< [ranks] i32

  /// Combines `results` [capacity * top_k, width] bf16: row p * top_k + c is choice c of received
  /// row p, if that expert is here. out [the dispatched rows, width], f32 or bf16: their sums,
  /// added by rank, and for each rank in the order of choice.
  virtual Result<void> combine(const Tensor& results, const Tensor& out) = 0;

  /// Sets how many rows all ranks will dispatch, as near as the host knows; selects the fastest
  /// kernels for it.
  void expect(std::int64_t rows) { expected_rows_ = rows; }
  std::int64_t expected_rows() const { return expected_rows_; }

 protected:
  explicit DeviceExpertExchange(const DeviceExpertExchangeLayout& layout) : layout_(layout) {}

  Tensor received_, received_codes_, received_scales_, received_ids_, received_counts_;
  bool takes_codes_ = false;

 private:
  DeviceExpertExchangeLayout layout_;
  std::int64_t expected_rows_ = 1;
};

}  // namespace troupe
