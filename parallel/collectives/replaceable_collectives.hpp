#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "parallel/collectives/forwarding_collectives.hpp"

namespace troupe {

/// Collectives that pass all calls on to others, the inner ones, which can be replaced when their
/// group has formed anew: whoever refers to this object, or to what it has opened, keeps doing so.
///
///     in use -> release() -> replace() -> reopen() -> in use
///
/// release() and reopen() are for inner ones on devices, whose memory and captured calls end with
/// their group; others may be replaced while in use. Threads: as Collectives, where the three count
/// as calls.
class ReplaceableCollectives : public ForwardingCollectives {
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
  void abort() override {
    if (has_inner()) inner().abort();
  }
  bool aborted() const override { return !has_inner() || inner().aborted(); }
  bool can_all_reduce_rms_norm(DType dtype, std::int64_t width) const override {
    return inner().can_all_reduce_rms_norm(dtype, width);
  }
  bool prefers_sharded_residual(std::size_t bytes) const override {
    return inner().prefers_sharded_residual(bytes);
  }
  Result<void> all_reduce_rms_norm(const AllReduceRmsNorm& sum) override {
    return inner().all_reduce_rms_norm(sum);
  }
  Result<void> columns_to_rows(const Tensor& part, const Tensor& whole,
                               const Tensor& scratch) override {
    return inner().columns_to_rows(part, whole, scratch);
  }
  Result<void> library_all_reduce(const Tensor& partial, const Tensor& sum) override {
    return inner().library_all_reduce(partial, sum);
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

  /// Opens by `open(Collectives&)`, now and in each reopen(). Null if that is.
  template <class Replaceable, class Open>
  Result<std::unique_ptr<typename Replaceable::Inner>> open_replaceable(Open open);

  int rank_;
  int size_;
  std::vector<Opening> openings_;
};

}  // namespace troupe
