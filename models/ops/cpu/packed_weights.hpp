#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/ops/cpu/kernels.hpp"
#include "models/ops/cpu/thread_pool.hpp"

namespace troupe {

/// The dtype in which a weight of dtype `given` is stored for a model of dtype `model`: bf16 stays
/// bf16, all others take the model's.
DType stored_dtype(DType given, DType model);

/// One or more matrices [n, k] in panels (kernels.hpp), matrix after matrix. Immutable but for
/// widen().
class PackedWeights {
 public:
  /// Errors: invalid_argument unless all weights are [n, k] of one shape and f32, bf16 or f16, and
  /// `segments` is a power of two (at most 64) that divides k.
  static Result<PackedWeights> pack(std::span<const Tensor> weights, int segments, DType model);

  /// Packs matrices of one shape that are all of this form (coded_form), by the threads of `pool`.
  /// Errors: as above, of segments. Throws std::bad_alloc.
  static Result<PackedWeights> pack_codes(std::span<const StoredMatrix> weights,
                                          const CodedForm& form, int segments, ThreadPool& pool);

  /// True if products round activations, too (CodePanels::rounds_rows).
  bool rounds_rows() const { return form_.rounds_rows; }
  /// Ends that: rearranges the codes, panel by panel where they are, as a matrix of the same form
  /// that rounds no rows has them. No product may run meanwhile.
  void widen(ThreadPool& pool);

  std::int64_t matrices() const { return matrices_; }
  std::int64_t n() const { return n_; }
  std::int64_t k() const { return k_; }
  int segments() const { return segments_; }
  DType dtype() const { return panels_->dtype(); }
  std::int64_t panels_per_matrix() const { return (n_ + panel_columns - 1) / panel_columns; }
  std::size_t bytes() const { return panels_->bytes() + scales_->bytes() + zero_points_->bytes(); }
  /// "f32", "bf16", "int8 codes", ...
  std::string kernel() const;
  /// Returns a job with the weights' part filled in, all panels of one matrix.
  GemmJob job(std::int64_t matrix) const;

 private:
  HostTensor panels_;  // [matrices, panels, k, 32]; of codes [matrices, panels, bytes of a panel]
  // Of codes (CodePanels):
  CodedForm form_;
  std::vector<CodeRun> runs_;  // empty: numbers
  HostTensor scales_;          // [matrices, panels, runs, 32]
  HostTensor zero_points_;     // likewise, or empty
  std::int64_t matrices_ = 0, n_ = 0, k_ = 0;
  int segments_ = 1;
};

class CpuLinear final : public Linear {
 public:
  explicit CpuLinear(PackedWeights packed) : packed_(std::move(packed)) {}
  std::int64_t out_features() const override { return packed_.n(); }
  std::int64_t in_features() const override { return packed_.k(); }
  std::size_t bytes() const override { return packed_.bytes(); }
  std::string kernel() const override { return packed_.kernel(); }
  bool rounds_rows() const override { return packed_.rounds_rows(); }
  void widen(ThreadPool& pool) { packed_.widen(pool); }
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
  std::string kernel() const override { return packed_.kernel(); }
  bool rounds_rows() const override { return packed_.rounds_rows(); }
  void widen(ThreadPool& pool) { packed_.widen(pool); }
  const PackedWeights& packed() const { return packed_; }

 private:
  PackedWeights packed_;
};

}  // namespace troupe
