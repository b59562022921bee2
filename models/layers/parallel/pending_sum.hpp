#pragma once

#include <utility>

#include "parallel/device/tensor.hpp"

namespace troupe {

/// A block's partial sums on this rank, to be added over the ranks by the next norm; or nothing, if
/// the block's output is already complete. TensorGroup::defer_all_reduce makes it, and
/// TensorGroup::add_and_norm, complete or all_reduce_rms_norm consumes it. Destroying one discards
/// the sum.
class [[nodiscard]] PendingSum {
 public:
  PendingSum() = default;
  PendingSum(PendingSum&& other) noexcept
      : partial_(std::exchange(other.partial_, Tensor())), begins_(other.begins_) {}
  PendingSum& operator=(PendingSum&& other) noexcept {
    partial_ = std::exchange(other.partial_, Tensor());
    begins_ = other.begins_;
    return *this;
  }
  ~PendingSum() = default;

  bool is_pending() const { return partial_.data() != nullptr; }
  /// [tokens, hidden] of the whole pass; empty if nothing is pending.
  const Tensor& partial() const { return partial_; }

 private:
  friend class TensorGroup;
  PendingSum(const Tensor& partial, bool begins) : partial_(partial), begins_(begins) {}

  Tensor partial_;
  bool begins_ = false;  ///< the sum is the first term of the residual stream
};

}  // namespace troupe
