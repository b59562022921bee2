#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include "parallel/collectives/device_expert_exchange.hpp"
#include "parallel/collectives/overlapped_all_reduce.hpp"
#include "parallel/device/tensor.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// An all-reduce whose sum is added to a residual stream, followed by the norm of that stream:
/// residual = the sum rounded to its dtype + residual, normed = RMSNorm(residual) * weight, bit for
/// bit as the three operations one by one.
struct AllReduceRmsNorm {
  Tensor partial;   ///< [rows, width]
  Tensor residual;  ///< [rows, width]; with `divided` this rank's ceil_slice of the rows
  Tensor weight;    ///< [width] f32
  float eps = 0.0F;
  Tensor normed;         ///< [rows, width], complete on every rank; other memory than `partial`
  bool begins = false;   ///< the sum is the first term of the residual stream, which is not read
  bool divided = false;  ///< each rank normalises its rows and sends them to the others
};

/// Operations that all ranks of a group do together, in the same order with agreeing arguments, and
/// messages between two of them. One object per rank. Implementations for host memory (shared
/// memory, links) complete a call before they return. The one for device memory (NCCL) enqueues it
/// on the stream of the device's other operations: tensors must stay alive until it is done, and
/// the next wait for the stream reports its errors and applies the timeout.
///
/// Sums are added in fp32 in the order of tree_sum.hpp over the ranks: the same bits on every rank,
/// at every offset in a buffer, whatever the buffer's size and the algorithm. On devices partial
/// sums may be bf16, which halves the traffic; each is widened, and a sum that is bf16 too is
/// rounded once. In host memory both are f32.
///
/// Errors of every call: cancelled after abort() anywhere in the group; timeout, naming the ranks
/// that did not come within timeout(); invalid_argument where shapes or dtypes are wrong or ranks
/// disagree; peer_died where the implementation learns that a rank is gone. After any of these the
/// group is unusable: all later calls on every rank return cancelled. A dead rank is noticed by the
/// timeout at the latest.
///
/// Threads: one thread at a time, except abort().
class Collectives {
 public:
  virtual ~Collectives() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Sums `partial` [any shape] of all ranks into `sum` (as many elements) of every rank. They may
  /// be the same tensor, and `partial` may be staging(); otherwise they must not overlap.
  virtual Result<void> all_reduce_tree(const Tensor& partial, const Tensor& sum) = 0;

  /// Sums `partial` [rows, ...] of all ranks; rank r gets rows_per_rank[r] rows of the sum, in
  /// order of rank: `sum` [rows_per_rank[rank()], ...]. Rows may be uneven and 0. `partial` may be
  /// staging(); no overlap.
  virtual Result<void> reduce_scatter_tree(const Tensor& partial, const Tensor& sum,
                                           std::span<const std::int64_t> rows_per_rank) = 0;

  /// Concatenates every rank's `part` [rows_per_rank[r], ...] into `all` [their sum, ...] on every
  /// rank; any dtype. Rows may be uneven and 0; `part` may be its own slice of `all`.
  virtual Result<void> all_gather(const Tensor& part, const Tensor& all,
                                  std::span<const std::int64_t> rows_per_rank) = 0;

  /// Copies `tensor` of rank `root` into every other rank's; any dtype.
  virtual Result<void> broadcast(const Tensor& tensor, int root) = 0;

  /// Sends rows of `send` [sum of send_rows, ...], send_rows[d] of them to rank d in order of rank,
  /// and receives into `receive` [sum of receive_rows, ...], receive_rows[s] of them from rank s.
  /// Any dtype, no overlap. receive_rows[s] must be what s sends (checked): ranks that do not know
  /// it exchange the counts first, with one row each.
  virtual Result<void> all_to_all(const Tensor& send, std::span<const std::int64_t> send_rows,
                                  const Tensor& receive,
                                  std::span<const std::int64_t> receive_rows) = 0;

  /// Sends `tensor` to rank `to`, which must receive() as many bytes; messages between two ranks
  /// keep their order. Returns when `tensor` may be written again, which may be before the receiver
  /// has it if the implementation has buffer space (its attach() or create() says how much). Any
  /// dtype; not to this rank itself.
  virtual Result<void> send(const Tensor& tensor, int to) = 0;

  /// Receives the next message of rank `from` into `tensor`. Errors: invalid_argument if it has
  /// another number of bytes.
  virtual Result<void> receive(const Tensor& tensor, int from) = 0;

  /// Returns when every rank has called it.
  virtual Result<void> barrier() = 0;

  /// Makes every call of the group, waiting or later, return cancelled. A call that all ranks have
  /// already joined may still succeed. Callable from any thread of any rank.
  virtual void abort() = 0;
  /// True if the group is known to be aborted or to have failed, by any rank. Callable from any
  /// thread.
  virtual bool aborted() const = 0;

  /// Memory that the tree sums read `partial` from without a copy, so a kernel can write its
  /// partial sums there: uninitialised, valid until the next call of any collective of this object.
  /// data() is null if the implementation has none that large; then use memory of your own.
  virtual Tensor staging(DType dtype, const Shape& shape) = 0;

  /// True if all_reduce_rms_norm takes rows of this width; the same on all ranks.
  virtual bool can_all_reduce_rms_norm(DType dtype, std::int64_t width) const {
    (void)dtype, (void)width;
    return false;
  }
  /// True if `divided` is faster for this many bytes of partial sums.
  virtual bool prefers_sharded_residual(std::size_t bytes) const {
    (void)bytes;
    return false;
  }
  /// Errors: unsupported if can_all_reduce_rms_norm is false.
  virtual Result<void> all_reduce_rms_norm(const AllReduceRmsNorm& sum) {
    (void)sum;
    return fail(ErrorCode::unsupported, "these collectives do not normalise sums");
  }

  /// Opens all-reduces that overlap with other work, for passes of up to `max_rows` rows of
  /// `width`; they may be mixed with the other calls. These collectives outlive it. All ranks call
  /// it. Null on all ranks if not supported.
  virtual Result<std::unique_ptr<OverlappedAllReduce>> open_overlapped_all_reduce(
      DType dtype, std::int64_t max_rows, std::int64_t width) {
    (void)dtype, (void)max_rows, (void)width;
    return std::unique_ptr<OverlappedAllReduce>();
  }

  /// Redistributes a matrix whose columns are spread over the ranks, so that each rank gets whole
  /// rows. `part` [rows, w]: columns [rank() w, rank() w + w); `whole` [own rows, n]: rank r's
  /// ceil_slice of the rows. n may be less than size() w: the last columns are left out. `scratch`
  /// has room for size() * own rows * w elements, and must not overlap. A NaN may arrive as another
  /// NaN.
  virtual Result<void> columns_to_rows(const Tensor& part, const Tensor& whole,
                                       const Tensor& scratch);

  /// Opens an expert exchange (dispatch and combine) among these ranks; it may be mixed with the
  /// other calls. These collectives outlive it. All ranks call it. Null on all ranks if not
  /// supported.
  virtual Result<std::unique_ptr<DeviceExpertExchange>> open_expert_exchange(
      const DeviceExpertExchangeLayout& layout) {
    (void)layout;
    return std::unique_ptr<DeviceExpertExchange>();
  }

  /// all_reduce_tree by the underlying library, in the library's own order of addition, for
  /// comparing times. Errors: unsupported if there is none.
  virtual Result<void> library_all_reduce(const Tensor& partial, const Tensor& sum) {
    (void)partial, (void)sum;
    return fail(ErrorCode::unsupported, "these collectives are no library's");
  }

  /// Sets how long each call may wait for the other ranks, from its start. Not while a call runs.
  virtual void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  std::chrono::milliseconds timeout() const { return timeout_; }

  /// In place.
  Result<void> all_reduce_tree(const Tensor& tensor) { return all_reduce_tree(tensor, tensor); }

 private:
  std::chrono::milliseconds timeout_ = std::chrono::seconds(30);
};

}  // namespace troupe
