#pragma once

#include <cstdint>
#include <span>

#include "models/ops/cpu/kernels.hpp"

namespace troupe {

/// The dtype in which a weight of dtype `given` is stored for a model of dtype `model`: bf16 stays
/// bf16, all others take the model's.
DType stored_dtype(DType given, DType model);

/// One or more matrices [n, k] in panels (kernels.hpp), matrix after matrix. Immutable.
class PackedWeights {
 public:
  /// Errors: invalid_argument unless all weights are [n, k] of one shape and f32, bf16 or f16, and
  /// `segments` is a power of two (at most 64) that divides k.
  static Result<PackedWeights> pack(std::span<const Tensor> weights, int segments, DType model);

  std::int64_t matrices() const { return matrices_; }
  std::int64_t n() const { return n_; }
  std::int64_t k() const { return k_; }
  int segments() const { return segments_; }
  DType dtype() const { return panels_->dtype(); }
  std::int64_t panels_per_matrix() const { return (n_ + panel_columns - 1) / panel_columns; }
  std::size_t bytes() const { return panels_->bytes(); }
  /// Returns a job with the weights' part filled in, all panels of one matrix.
  GemmJob job(std::int64_t matrix) const;

 private:
  HostTensor panels_;  // [matrices, panels, k, 32]
  std::int64_t matrices_ = 0, n_ = 0, k_ = 0;
  int segments_ = 1;
};

class CpuLinear final : public Linear {
 public:
  explicit CpuLinear(PackedWeights packed) : packed_(std::move(packed)) {}
  std::int64_t out_features() const override { return packed_.n(); }
  std::int64_t in_features() const override { return packed_.k(); }
  std::size_t bytes() const override { return packed_.bytes(); }
  const PackedWeights& packed() const { return packed_; }

 private:
  PackedWeights packed_;
};

class CpuGroupedLinear final : public GroupedLinear {
 public:
  explicit CpuGroupedLinear(PackedWeights packed) : packed_(std::move(packed)) {}
  std::int64_t experts() const override { return packed_.matrices(); }
  std::int64_t out_features() const override { return packed_.n(); }
  std::int64_t in_features() const override { return packed_.k(); }
  std::size_t bytes() const override { return packed_.bytes(); }
  const PackedWeights& packed() const { return packed_; }

 private:
  PackedWeights packed_;
};

}  // namespace troupe
