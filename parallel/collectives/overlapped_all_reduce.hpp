#pragma once

#include <cstdint>

#include "parallel/device/tensor.hpp"
#include "parallel/sharding/sharding.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

struct AllReduceRmsNorm;

/// Sums over the ranks of a group that become norms, as Collectives::all_reduce_rms_norm's with
/// `divided` and to the same bits, but beside what the device computes meanwhile. The rows of a
/// pass are cut into parts: those of one part travel while another part's are multiplied.
///
/// Of each part, on every rank: begin, norm, await, begin, ...; what was begun may also be begun
/// again, and is forgotten then. All ranks make the same calls in the same order, in which
/// parts may take turns. Calls only enqueue. Errors: those of Collectives. One thread at a time.
class OverlappedAllReduce {
 public:
  static constexpr int parts = 4;

  virtual ~OverlappedAllReduce() = default;

  /// Of `rows` rows, those of part `part`. All parts but the last have the same number, which
  /// `ranks` divides.
  static Slice part_of(std::int64_t rows, int part, int ranks) {
    const std::int64_t each = rows / parts / ranks * ranks;
    const std::int64_t begin = part * each;
    return {begin, part + 1 < parts ? each : rows - begin};
  }

  /// [most rows of a pass, width]: where the other ranks write normalised rows.
  const Tensor& normed() const { return normed_; }

  /// Passes of fewer rows are faster without.
  std::int64_t min_rows() const { return min_rows_; }
  void set_least_rows(std::int64_t rows) { min_rows_ = rows; }

  /// Sends this rank's partial sums [rows of the part, width], which what is enqueued so far has
  /// written, to the rows' owners. They must stay until the part is awaited.
  virtual Result<void> begin(int part, const Tensor& partial) = 0;
  /// Sums what was begun last, adds it to the residual stream, normalises it and sends the rows to
  /// all. `sum.partial` are the part's rows that were begun, `sum.residual` this rank's ceil_slice
  /// of them, `sum.normed` the part's rows of normed().
  virtual Result<void> norm(int part, const AllReduceRmsNorm& sum) = 0;
  /// What is enqueued from now on finds the rows of the last norm.
  virtual Result<void> await(int part) = 0;

 protected:
  Tensor normed_;
  std::int64_t min_rows_ = 0;
};

}  // namespace troupe
