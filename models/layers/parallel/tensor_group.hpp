#pragma once

#include <array>
#include <memory>
#include <vector>

#include "models/layers/hidden_state.hpp"
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
/// both, so the bits are too. Partial sums are f32 where activations are, or where sums must be
/// exact (ModelLimits::exact_sums), and else bf16.
///
/// Where the collectives sum, add and normalise in one go, a block defers its all-reduce to the
/// next norm: it returns a PendingSum, which add_and_norm uses up. In passes of many tokens that
/// divides the residual stream as sequence parallelism does, whether that was asked for or not.
///
/// With OverlappedAllReduce, passes of very many tokens are cut into parts besides: blocks go
/// through the pass part by part (defer_all_reduce_by_parts), and the sums of one part go on beside
/// what is done for others.
class TensorGroup {
 public:
  /// `collectives` of the device may be null on one rank; else they outlive the object, as `ops`
  /// does.
  /// `max_elements` bounds the partial sums of one call, `hidden` is the width of the residual
  /// stream. `own_rows_are_all`: blocks want every rank to have all rows of the residual stream,
  /// unless sequence parallelism was asked for. `partial_dtype` is that of partial sums, f32 or
  /// that of activations. Errors: resource_exhausted.
  static Result<TensorGroup> create(Collectives* collectives, bool sequence_parallel,
                                    std::int64_t max_elements, std::int64_t hidden,
                                    bool own_rows_are_all, DType partial_dtype, Ops& ops);

  /// Passes of very many tokens are cut into parts from now on. Not where residual streams are
  /// anything but sums that are left and norms of these that all tokens have.
  void overlap_all_reduce(std::unique_ptr<OverlappedAllReduce> side) { side_ = std::move(side); }
  /// How a pass of `tokens` is cut: into parts, some of which may be empty, or into one.
  std::vector<Slice> parts(std::int64_t tokens) const;
  /// Whether passes may be cut: not those that are recorded, where no stream waits for ranks.
  void allow_parts(bool allowed) { allows_parts_ = allowed; }

  int size() const { return collectives_ == nullptr ? 1 : collectives_->size(); }
  Collectives* collectives() const { return collectives_; }  ///< null on one rank
  /// Whether partial sums travel as they are, so that their sum is as exact as one rank's.
  bool sums_exactly() const { return collectives_ == nullptr || partial_dtype_ == DType::f32; }
  bool sequence_parallel() const { return sequence_parallel_; }

  /// This rank's part when the tokens of a pass are divided among the ranks.
  Slice token_slice(std::int64_t tokens) const;
  /// Whether ranks hold the residual stream of their token_slice alone in a pass of `tokens`: with
  /// sequence parallelism, or where that is faster.
  bool divides(std::int64_t tokens) const;
  /// How many rows of the residual stream this rank holds in a pass of `tokens`.
  std::int64_t own_row_count(std::int64_t tokens) const;
  /// Which tokens these are: token_slice where the residual stream is divided, else all. Not of a
  /// pass that is cut into parts, where they are a slice of each part.
  Slice own_slice(std::int64_t tokens) const;

  /// Completes `all` [tokens, width], of which this rank has written the rows own_slice(tokens).
  /// Errors: those of Collectives.
  Result<void> gather_tokens(const Tensor& all);
  /// Completes `all` [tokens, width], of which this rank has written the rows token_slice(tokens).
  Result<void> gather_slices(const Tensor& all);

  /// Lets `compute(partial)` write this rank's partial sums [tokens * rows_per_token, width], f32
  /// or activation dtype, and leaves the sums over the ranks, in tree order, of its own tokens'
  /// rows in `own` [own tokens * rows_per_token, width]. On one rank the partial is the sum. With
  /// `one_has_each` all ranks but one have a zero for each element. Errors: those of Collectives.
  template <class Compute>
  Result<void> sum_to_owners(std::int64_t tokens, std::int64_t rows_per_token, const Tensor& own,
                             Compute&& compute, bool one_has_each = false) {
    if (collectives_ == nullptr) {
      compute(own);
      return {};
    }
    const Shape shape{tokens * rows_per_token, own[1]};
    // What is no sum of several ranks' numbers loses nothing in the dtype that it ends in.
    const DType dtype = one_has_each ? own.dtype() : partial_dtype_;
    Tensor partial = collectives_->staging(dtype, shape);
    if (partial.data() == nullptr) {
      const bool in_place = !divides(tokens) && own.dtype() == dtype;
      partial = in_place ? own : Tensor(scratch_->data(), dtype, shape);
    }
    compute(partial);
    return sum(partial, rows_per_token, own);
  }

  /// As sum_to_owners of one row a token, but the sum may be left to the add_and_norm or complete
  /// that comes next, which gets what is returned. Until then `own` is not written, if the sum is
  /// pending. One sum is pending at a time. With `begins` the sum is where the residual stream
  /// begins, of which `own` are the rows; each element is one rank's, and zero elsewhere.
  template <class Compute>
  Result<PendingSum> defer_all_reduce(std::int64_t tokens, const Tensor& own, Compute&& compute,
                                      bool begins = false) {
    if (!leaves(tokens)) {
      TROUPE_CHECK(sum_to_owners(tokens, 1, own, compute, begins));
      return PendingSum();
    }
    PendingSum sum(Tensor(scratch_->data(), partial_dtype_, {tokens, own[1]}), begins);
    TROUPE_CHECK(await_rows());
    compute(sum.partial());
    if (in_parts(tokens)) TROUPE_CHECK(begin_parts(sum.partial()));
    return sum;
  }
  /// As defer_all_reduce, of a block that reads normalised rows: `compute(rows, partial)` writes
  /// the partial sums of a Slice of the tokens, which may be all, once their normalised rows are
  /// there.
  template <class Compute>
  Result<PendingSum> defer_all_reduce_by_parts(std::int64_t tokens, const Tensor& own,
                                               Compute&& compute) {
    if (!in_parts(tokens)) {
      return defer_all_reduce(tokens, own,
                              [&](const Tensor& sums) { compute(Slice{0, tokens}, sums); });
    }
    PendingSum sum(Tensor(scratch_->data(), partial_dtype_, {tokens, own[1]}), false);
    for (int part = 0; part < OverlappedAllReduce::parts; ++part) {
      const Slice rows = part_of(tokens, part);
      TROUPE_CHECK(await(part));
      const Tensor sums = sum.partial().rows(rows.begin, rows.count);
      compute(rows, sums);
      TROUPE_CHECK(side_->begin(part, sums));
    }
    return sum;
  }
  /// Lets what comes next find all normalised rows.
  Result<void> await_rows();
  /// Where norms of a pass of `tokens` go that all ranks want: the first rows of `own`, or where
  /// the ranks write each other's.
  Tensor normed_rows(const Tensor& own, std::int64_t tokens) const {
    return in_parts(tokens) ? side_->normed().rows(0, tokens) : own.rows(0, tokens);
  }

  /// Writes the sum to the `own` that it was deferred with, if it is pending. Errors: those of
  /// Collectives.
  Result<void> complete(PendingSum sum, const Tensor& own);

  /// What a norm reads and writes.
  struct Norm {
    Tensor weight;  ///< [hidden] f32
    float eps;
    Tensor out;        ///< [tokens, hidden] activation, of all tokens
    bool of_all_rows;  ///< `out` is completed; else its own rows are enough
  };
  /// HiddenState::add_and_norm, after the hidden state's sum, which it uses up.
  Result<void> add_and_norm(Ops& ops, HiddenState& hidden, const Norm& norm);
  /// The same of `partial`, rows of a pending sum that is wanted no more, and the residual stream
  /// of these, all of which this rank holds.
  Result<void> all_reduce_rms_norm(const Tensor& partial, const Tensor& residual, const Norm& norm);

 private:
  TensorGroup(Collectives* collectives, bool sequence_parallel, DType partial_dtype);
  Result<void> sum(const Tensor& partial, std::int64_t rows_per_token, const Tensor& own);
  void count_rows(std::int64_t tokens, std::int64_t rows_per_token);
  /// Whether a pass is cut into parts.
  bool in_parts(std::int64_t tokens) const {
    return side_ != nullptr && allows_parts_ && tokens >= side_->min_rows() && divides(tokens);
  }
  Slice part_of(std::int64_t tokens, int part) const {
    return OverlappedAllReduce::part_of(tokens, part, size());
  }
  /// This rank's rows of a part in its own rows of the residual stream.
  Slice own_of(std::int64_t tokens, int part) const;
  Result<void> await(int part);
  Result<void> begin_parts(const Tensor& partial);
  Result<void> norm_parts(HiddenState& hidden, const Norm& norm);
  /// Whether a pass's sums are left to norms.
  bool leaves(std::int64_t tokens) const;
  std::size_t partial_bytes(std::int64_t tokens) const {
    return static_cast<std::size_t>(tokens * hidden_) * size_of(partial_dtype_);
  }

  Collectives* collectives_;
  bool sequence_parallel_;
  bool leaves_sums_ = false;  ///< to norms, with which they are one operation
  bool may_divide_ = false;   ///< passes for which that is faster
  std::int64_t hidden_ = 0;
  DType partial_dtype_;
  DeviceTensor scratch_;  ///< for partial sums too large for staging that are not made in place
  std::unique_ptr<OverlappedAllReduce> side_;
  bool allows_parts_ = true;
  std::array<bool, OverlappedAllReduce::parts>
      unseen_{};  ///< parts whose last norm was not awaited yet
  std::vector<std::int64_t> rows_per_rank_;
};

}  // namespace troupe
