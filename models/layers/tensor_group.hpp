#pragma once

#include <vector>

#include "models/ops/ops.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/sharding/sharding.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// How the ranks that share each matrix share a pass's tokens between two matrices. Without
/// sequence parallelism every rank holds all tokens of the residual stream and partial sums are
/// all-reduced. With it a rank holds ceil(tokens / ranks) of them, the last ranks fewer or none:
/// partial sums are reduce-scattered to the rows' owners, and normalised rows are all-gathered
/// before a block (Korthikanti et al. 2022, "Reducing Activation Recomputation", section 4.2.2).
/// The bytes moved are the same; norms and residuals are divided. The sums' order is the tree's in
/// both, so the bits are too. Partial sums are f32 where activations are, and bf16 where those are.
class TensorGroup {
 public:
  /// `collectives` of the device may be null on one rank; else they outlive the object, as `ops`
  /// does.
  /// `max_elements` bounds the partial sums of one call. Errors: resource_exhausted.
  static Result<TensorGroup> create(Collectives* collectives, bool sequence_parallel,
                                    std::int64_t max_elements, Ops& ops);

  int size() const { return collectives_ == nullptr ? 1 : collectives_->size(); }
  Collectives* collectives() const { return collectives_; }  ///< null on one rank
  /// Whether partial sums travel as they are, so that their sum is as exact as one rank's.
  bool sums_exactly() const { return collectives_ == nullptr || partial_dtype_ == DType::f32; }
  bool sequence_parallel() const { return sequence_parallel_; }

  /// This rank's part when the tokens of a pass are divided among the ranks.
  Slice token_slice(std::int64_t tokens) const;
  /// The tokens of a pass of `tokens` whose residual stream this rank holds: token_slice with
  /// sequence parallelism, else all.
  Slice own_tokens(std::int64_t tokens) const;

  /// Completes `all` [tokens, width], of which this rank has written the rows own_tokens(tokens).
  /// Errors: those of Collectives.
  Result<void> gather_tokens(const Tensor& all);
  /// Completes `all` [tokens, width], of which this rank has written the rows token_slice(tokens).
  Result<void> gather_slices(const Tensor& all);

  /// Lets `compute(partial)` write this rank's partial sums [tokens * rows_per_token, width], f32
  /// or activation dtype, and leaves the sums over the ranks, in tree order, of its own tokens'
  /// rows in `own` [own tokens * rows_per_token, width]. On one rank the partial is the sum.
  /// Errors: those of Collectives.
  template <class Compute>
  Result<void> sum_to_owners(std::int64_t tokens, std::int64_t rows_per_token, const Tensor& own,
                             Compute&& compute) {
    if (collectives_ == nullptr) {
      compute(own);
      return {};
    }
    const Shape shape{tokens * rows_per_token, own[1]};
    Tensor partial = collectives_->staging(partial_dtype_, shape);
    if (partial.data() == nullptr) {
      const bool in_place = !sequence_parallel_ && own.dtype() == partial_dtype_;
      partial = in_place ? own : Tensor(scratch_->data(), partial_dtype_, shape);
    }
    compute(partial);
    return sum(partial, rows_per_token, own);
  }

 private:
  TensorGroup(Collectives* collectives, bool sequence_parallel, DType partial_dtype);
  Result<void> sum(const Tensor& partial, std::int64_t rows_per_token, const Tensor& own);
  void count_rows(std::int64_t tokens, std::int64_t rows_per_token);

  Collectives* collectives_;
  bool sequence_parallel_;
  DType partial_dtype_;
  DeviceTensor scratch_;  ///< for partial sums too large for staging that are not made in place
  std::vector<std::int64_t> rows_per_rank_;
};

}  // namespace troupe
