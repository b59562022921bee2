#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "parallel/collectives/collectives.hpp"

namespace troupe {

/// Collectives that pass all calls on to others, the inner ones, which can be replaced when their
/// group has formed anew: whoever refers to this object, or to what it has opened, keeps doing so.
///
///     in use -> release() -> replace() -> reopen() -> in use
///
/// release() and reopen() are for inner ones on devices, whose memory and captured calls end with
/// their group; others may be replaced while in use. Threads: as Collectives, where the three count
/// as calls.
class ReplaceableCollectives : public Collectives {
 public:
  explicit ReplaceableCollectives(std::shared_ptr<Collectives> inner);

  /// Destroys the inner collectives and the inner parts of what has been opened. All work that uses
  /// them must have been ended (abort()), and what has been captured of it destroyed. Until
  /// replace() only abort(), aborted(), rank() and size() may be called.
  void release();
  /// Passes calls on to `inner` from now on, of the same rank and size, with the timeout as it is.
  /// Tensors from staging() before are void.
  virtual void replace(std::shared_ptr<Collectives> inner);
  /// Opens again all that has been opened, in the same order. All ranks call it, or open the same
  /// for the first time. What has been opened must still live. Errors: those of opening;
  /// unsupported if the ranks cannot do any more what they could.
  Result<void> reopen();

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  using Collectives::all_reduce_tree;
  Result<void> all_reduce_tree(const Tensor& partial, const Tensor& sum) override {
    return inner_->all_reduce_tree(partial, sum);
  }
  Result<void> reduce_scatter_tree(const Tensor& partial, const Tensor& sum,
                                   std::span<const std::int64_t> rows_per_rank) override {
    return inner_->reduce_scatter_tree(partial, sum, rows_per_rank);
  }
  Result<void> all_gather(const Tensor& part, const Tensor& all,
                          std::span<const std::int64_t> rows_per_rank) override {
    return inner_->all_gather(part, all, rows_per_rank);
  }
  Result<void> broadcast(const Tensor& tensor, int root) override {
    return inner_->broadcast(tensor, root);
  }
  Result<void> all_to_all(const Tensor& send, std::span<const std::int64_t> send_rows,
                          const Tensor& receive,
                          std::span<const std::int64_t> receive_rows) override {
    return inner_->all_to_all(send, send_rows, receive, receive_rows);
  }
  Result<void> send(const Tensor& tensor, int to) override { return inner_->send(tensor, to); }
  Result<void> receive(const Tensor& tensor, int from) override {
    return inner_->receive(tensor, from);
  }
  Result<void> barrier() override { return inner_->barrier(); }
  void abort() override {
    if (inner_) inner_->abort();
  }
  bool aborted() const override { return inner_ == nullptr || inner_->aborted(); }
  Tensor staging(DType dtype, const Shape& shape) override { return inner_->staging(dtype, shape); }
  bool can_all_reduce_rms_norm(DType dtype, std::int64_t width) const override {
    return inner_->can_all_reduce_rms_norm(dtype, width);
  }
  bool prefers_sharded_residual(std::size_t bytes) const override {
    return inner_->prefers_sharded_residual(bytes);
  }
  Result<void> all_reduce_rms_norm(const AllReduceRmsNorm& sum) override {
    return inner_->all_reduce_rms_norm(sum);
  }
  Result<void> columns_to_rows(const Tensor& part, const Tensor& whole,
                               const Tensor& scratch) override {
    return inner_->columns_to_rows(part, whole, scratch);
  }
  Result<void> library_all_reduce(const Tensor& partial, const Tensor& sum) override {
    return inner_->library_all_reduce(partial, sum);
  }
  Result<std::unique_ptr<OverlappedAllReduce>> open_overlapped_all_reduce(
      DType dtype, std::int64_t max_rows, std::int64_t width) override;
  Result<std::unique_ptr<DeviceExpertExchange>> open_expert_exchange(
      const DeviceExpertExchangeLayout& layout) override;
  void set_timeout(std::chrono::milliseconds timeout) override;

 private:
  /// Something that was opened, perhaps null.
  struct Opening {
    std::function<void()> release;
    std::function<Result<void>(Collectives& inner)> reopen;
  };

  std::shared_ptr<Collectives> inner_;  ///< null between release() and replace()
  int rank_;
  int size_;
  std::vector<Opening> openings_;
};

}  // namespace troupe
