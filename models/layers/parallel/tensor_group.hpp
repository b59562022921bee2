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

class Norm;

/// How the ranks that share each matrix share a pass's tokens between two matrices. Without
/// sequence parallelism every rank holds all tokens of the residual stream and partial sums are
/// all-reduced. With it a rank holds ceil(tokens / ranks) of them, the last ranks fewer or none:
/// partial sums are reduce-scattered to the rows' owners, and normalised rows are all-gathered
/// before a block (Korthikanti et al. 2022, "Reducing Activation Recomputation", section 4.2.2).
/// The bytes moved are the same; norms and residuals are divided. Sums are added in tree order in
/// both cases, so the bits are the same. Partial sums are f32 if activations are, or if sums must
/// be exact (ModelLimits::exact_sums), otherwise bf16.
///
/// If the collectives can sum, add and normalise in one operation, a block defers its all-reduce to
/// the next norm: it returns a PendingSum, which add_and_norm consumes. In passes of many tokens
/// that divides the residual stream as sequence parallelism does, even if that was not requested.
///
/// With OverlappedAllReduce, passes of very many tokens are also cut into parts: blocks process the
/// pass part by part (defer_all_reduce_by_parts), and one part's sums overlap with the computation
/// of others.
class TensorGroup {
 public:
  /// `collectives` of the device may be null on one rank; otherwise they outlive the object, as
  /// `ops` does. `max_elements` bounds the partial sums of one call, `hidden` is the width of the
  /// residual stream. `own_rows_are_all`: blocks need every rank to have all rows of the residual
  /// stream, unless sequence parallelism was requested. `fuses_norms`: most sums are followed by an
  /// RMSNorm, so that deferring them pays; false for models with other norms, which must not.
  /// `partial_dtype` is that of partial sums, f32 or that of activations. Errors:
  /// resource_exhausted.
  static Result<TensorGroup> create(Collectives* collectives, bool sequence_parallel,
                                    std::int64_t max_elements, std::int64_t hidden,
                                    bool own_rows_are_all, DType partial_dtype, Ops& ops,
                                    bool fuses_norms = true);

  /// Cuts passes of very many tokens into parts from now on. Only for models whose residual streams
  /// consist of deferred sums and their norms over all tokens.
  void overlap_all_reduce(std::unique_ptr<OverlappedAllReduce> side) { side_ = std::move(side); }
  /// Returns how a pass of `tokens` is cut: into parts, some of which may be empty, or into one.
  std::vector<Slice> parts(std::int64_t tokens) const;
  /// Sets if passes may be cut: not captured ones, in which no stream waits for ranks.
  void allow_parts(bool allowed) { allows_parts_ = allowed; }

  int size() const { return collectives_ == nullptr ? 1 : collectives_->size(); }
  Collectives* collectives() const { return collectives_; }  ///< null on one rank
  /// True if partial sums are exchanged unrounded, so that their sum is as exact as one rank's.
  bool sums_exactly() const { return collectives_ == nullptr || partial_dtype_ == DType::f32; }
  bool sequence_parallel() const { return sequence_parallel_; }

  /// This rank's part if the tokens of a pass are divided among the ranks.
  Slice token_slice(std::int64_t tokens) const;
  /// True if ranks hold only the residual stream of their token_slice in a pass of `tokens`: with
  /// sequence parallelism, or if that is faster.
  bool divides(std::int64_t tokens) const;
  /// The number of rows of the residual stream that this rank holds in a pass of `tokens`.
  std::int64_t own_row_count(std::int64_t tokens) const;
  /// The tokens of these rows: token_slice if the residual stream is divided, otherwise all. Not
  /// for a pass that is cut into parts, where they are a slice of each part.
  Slice own_slice(std::int64_t tokens) const;

  /// Completes `all` [tokens, width], of which this rank has written the rows own_slice(tokens).
  /// Errors: those of Collectives.
  Result<void> gather_tokens(const Tensor& all);
  /// Completes `all` [tokens, width], of which this rank has written the rows token_slice(tokens).
  Result<void> gather_slices(const Tensor& all);

  /// Lets `compute(partial)` write this rank's partial sums [tokens * rows_per_token, width], f32
  /// or activation dtype, and writes the sums over the ranks, in tree order, of its own tokens'
  /// rows to `own` [own tokens * rows_per_token, width]. On one rank the partial is the sum. With
  /// `one_has_each` every element is zero on all ranks but one. Errors: those of Collectives.
  template <class Compute>
  Result<void> sum_to_owners(std::int64_t tokens, std::int64_t rows_per_token, const Tensor& own,
                             Compute&& compute, bool one_has_each = false) {
    if (collectives_ == nullptr) {
      compute(own);
      return {};
    }
    const Shape shape{tokens * rows_per_token, own[1]};
    // An element that is zero on all ranks but one loses nothing in its final dtype.
    const DType dtype = one_has_each ? own.dtype() : partial_dtype_;
    Tensor partial = collectives_->staging(dtype, shape);
    if (partial.data() == nullptr) {
      const bool in_place = !divides(tokens) && own.dtype() == dtype;
      partial = in_place ? own : Tensor(scratch_->data(), dtype, shape);
    }
    compute(partial);
    return sum(partial, rows_per_token, own);
  }

  /// Like sum_to_owners with one row a token, but the sum may be deferred to the next add_and_norm
  /// or complete, which takes the result. While the sum is pending, `own` is not written. One sum
  /// is pending at a time. With `begins` the sum is the first term of the residual stream, whose
  /// rows are `own`; each element is one rank's, and zero elsewhere.
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
  /// Like defer_all_reduce, for a block that reads normalised rows: `compute(rows, partial)` writes
  /// the partial sums of a Slice of the tokens, possibly all, once their normalised rows are there.
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
  /// Forgets the parts of a pass that was aborted.
  void discard_parts() { unseen_ = {}; }
  /// Makes later work wait for all normalised rows.
  Result<void> await_rows();
  /// The destination of norms of a pass of `tokens` that all ranks need: the first rows of `own`,
  /// or the memory where the ranks write each other's.
  Tensor normed_rows(const Tensor& own, std::int64_t tokens) const {
    return in_parts(tokens) ? side_->normed().rows(0, tokens) : own.rows(0, tokens);
  }

  /// Writes the sum to the `own` that it was deferred with, if it is pending. Errors: those of
  /// Collectives.
  Result<void> complete(PendingSum sum, const Tensor& own);

  /// Writes hidden.update, if its sum is pending, so that it is there. Errors: those of
  /// Collectives.
  Result<void> complete(HiddenState& hidden) {
    return complete(std::move(hidden.sum), hidden.update);
  }

  /// A norm and where its output goes.
  struct NormTo {
    const Norm& norm;
    Tensor out;        ///< [tokens, hidden] activation, of all tokens
    bool of_all_rows;  ///< `out` is completed on all ranks; otherwise only own rows are needed
    /// The only matrix that reads `out`, or null (DenseOps::rms_norm); used where add_and_norm
    /// applies the norm to all rows itself.
    const Linear* next = nullptr;
  };
  /// Adds hidden.update, after its pending sum, to the residual stream, which it consumes, and
  /// normalises the residual stream.
  Result<void> add_and_norm(Ops& ops, HiddenState& hidden, const NormTo& to);
  /// Adds hidden.update likewise, and returns the rows of all tokens of the residual stream: its
  /// own memory, or `all` [tokens, hidden] if ranks hold parts of it.
  Result<Tensor> add_and_gather(Ops& ops, HiddenState& hidden, const Tensor& all);
  /// The norm of add_and_norm for `partial`, rows of a pending sum that is no longer needed, and
  /// their residual stream, all of which this rank holds.
  Result<void> all_reduce_rms_norm(const Tensor& partial, const Tensor& residual, const NormTo& to);

  /// Writes the rows of all ranks to `all` [ranks * rows, width], rank after rank. own [rows,
  /// width], equal numbers on all ranks.
  Result<void> all_gather(const Tensor& own, const Tensor& all);

 private:
  TensorGroup(Collectives* collectives, bool sequence_parallel, DType partial_dtype);
  Result<void> sum(const Tensor& partial, std::int64_t rows_per_token, const Tensor& own);
  void count_rows(std::int64_t tokens, std::int64_t rows_per_token);
  /// True if a pass is cut into parts.
  bool in_parts(std::int64_t tokens) const {
    return side_ != nullptr && allows_parts_ && tokens >= side_->min_rows() && divides(tokens);
  }
  Slice part_of(std::int64_t tokens, int part) const {
    return OverlappedAllReduce::part_of(tokens, part, size());
  }
  /// This rank's rows of a part within its own rows of the residual stream.
  Slice own_of(std::int64_t tokens, int part) const;
  Result<void> await(int part);
  Result<void> begin_parts(const Tensor& partial);
  Result<void> norm_parts(HiddenState& hidden, const NormTo& to);
  /// True if a pass's sums are deferred to norms.
  bool leaves(std::int64_t tokens) const;
  std::size_t partial_bytes(std::int64_t tokens) const {
    return static_cast<std::size_t>(tokens * hidden_) * size_of(partial_dtype_);
  }

  Collectives* collectives_;
  bool sequence_parallel_;
  bool leaves_sums_ = false;  ///< sums are deferred to norms and fused with them
  bool may_divide_ = false;   ///< the residual stream may be divided in passes where that is faster
  std::int64_t hidden_ = 0;
  DType partial_dtype_;
  DeviceTensor scratch_;  ///< partial sums too large for staging and not computed in place
  std::unique_ptr<OverlappedAllReduce> side_;
  bool allows_parts_ = true;
  std::array<bool, OverlappedAllReduce::parts>
      unseen_{};  ///< parts whose last norm is not awaited yet
  std::vector<std::int64_t> rows_per_rank_;
};

}  // namespace troupe
