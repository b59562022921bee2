#pragma once

#include <cstdint>

#include "parallel/device/tensor.hpp"
#include "parallel/sharding/sharding.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

struct AllReduceRmsNorm;

/// All-reduces followed by norms, with the same bits as Collectives::all_reduce_rms_norm with
/// `divided`, but overlapped with computation. The rows of a pass are cut into parts: one part's
/// rows travel while another part's GEMM runs.
///
/// Per part, on every rank: begin, norm, await, begin, ...; beginning a part again discards what
/// was begun. All ranks make the same calls in the same order; parts may be interleaved. Calls only
/// enqueue. Errors: those of Collectives. One thread at a time.
class OverlappedAllReduce {
 public:
  static constexpr int parts = 4;

  virtual ~OverlappedAllReduce() = default;

  /// Returns part `part` of `rows` rows. All parts but the last have the same number, which `ranks`
  /// divides.
  static Slice part_of(std::int64_t rows, int part, int ranks) {
    const std::int64_t each = rows / parts / ranks * ranks;
    const std::int64_t begin = part * each;
    return {begin, part + 1 < parts ? each : rows - begin};
  }

  /// [maximum rows of a pass, width]: where the other ranks write normalised rows.
  const Tensor& normed() const { return normed_; }

  /// Passes of fewer rows are faster without it.
  std::int64_t min_rows() const { return min_rows_; }
  void set_least_rows(std::int64_t rows) { min_rows_ = rows; }

  /// Sends this rank's partial sums [rows of the part, width], written by the work enqueued so far,
  /// to the rows' owners. They must stay until the part is awaited.
  virtual Result<void> begin(int part, const Tensor& partial) = 0;
  /// Sums the part that was begun last, adds it to the residual stream, normalises it and sends the
  /// rows to all. `sum.partial` are the part's rows that were begun, `sum.residual` this rank's
  /// ceil_slice of them, `sum.normed` the part's rows of normed().
  virtual Result<void> norm(int part, const AllReduceRmsNorm& sum) = 0;
  /// Makes work enqueued from now on wait for the rows of the last norm.
  virtual Result<void> await(int part) = 0;

 protected:
  Tensor normed_;
  std::int64_t min_rows_ = 0;
};

}  // namespace troupe
