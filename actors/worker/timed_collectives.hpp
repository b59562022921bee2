#pragma once

#include <memory>
#include <string>
#include <vector>

#include "actors/telemetry/span_recorder.hpp"
#include "actors/worker/collective_log.hpp"
#include "parallel/collectives/collectives.hpp"

namespace troupe {

/// Collectives that record each call that waits for other ranks as a span of one kind, note it in a
/// CollectiveLog, and pass all calls on to `inner`. Calls on the objects that
/// open_overlapped_all_reduce and open_expert_exchange return are not recorded: they only enqueue.
class TimedCollectives final : public Collectives {
 public:
  /// `recorder` outlives the object; it is used on the calling thread. `group`: its name and the
  /// ranks of the mesh in it, for log().
  TimedCollectives(std::shared_ptr<Collectives> inner, SpanRecorder& recorder, SpanKind kind,
                   std::string group = {}, std::vector<int> ranks = {});
  /// What call it is in. Any thread.
  CollectiveState state() const { return log_.state(); }

  /// Passes calls on to `inner` from now on, with the timeout as it is: whoever refers to this
  /// object keeps doing so when its group has formed anew. Tensors from staging() before are void.
  /// Not while another call runs.
  void replace(std::shared_ptr<Collectives> inner);

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  using Collectives::all_reduce_tree;
  Result<void> all_reduce_tree(const Tensor& partial, const Tensor& sum) override;
  Result<void> reduce_scatter_tree(const Tensor& partial, const Tensor& sum,
                                   std::span<const std::int64_t> rows_per_rank) override;
  Result<void> all_gather(const Tensor& part, const Tensor& all,
                          std::span<const std::int64_t> rows_per_rank) override;
  Result<void> broadcast(const Tensor& tensor, int root) override;
  Result<void> all_to_all(const Tensor& send, std::span<const std::int64_t> send_rows,
                          const Tensor& receive,
                          std::span<const std::int64_t> receive_rows) override;
  Result<void> send(const Tensor& tensor, int to) override;
  Result<void> receive(const Tensor& tensor, int from) override;
  Result<void> barrier() override;
  void abort() override { inner_->abort(); }
  bool aborted() const override { return inner_->aborted(); }
  Tensor staging(DType dtype, const Shape& shape) override { return inner_->staging(dtype, shape); }
  bool can_all_reduce_rms_norm(DType dtype, std::int64_t width) const override {
    return inner_->can_all_reduce_rms_norm(dtype, width);
  }
  bool prefers_sharded_residual(std::size_t bytes) const override {
    return inner_->prefers_sharded_residual(bytes);
  }
  Result<void> all_reduce_rms_norm(const AllReduceRmsNorm& sum) override;
  Result<std::unique_ptr<OverlappedAllReduce>> open_overlapped_all_reduce(
      DType dtype, std::int64_t max_rows, std::int64_t width) override {
    return inner_->open_overlapped_all_reduce(dtype, max_rows, width);
  }
  Result<void> columns_to_rows(const Tensor& part, const Tensor& whole,
                               const Tensor& scratch) override;
  Result<std::unique_ptr<DeviceExpertExchange>> open_expert_exchange(
      const DeviceExpertExchangeLayout& layout) override {
    return inner_->open_expert_exchange(layout);
  }
  Result<void> library_all_reduce(const Tensor& partial, const Tensor& sum) override;
  void set_timeout(std::chrono::milliseconds timeout) override;

 private:
  class Call;

  std::shared_ptr<Collectives> inner_;
  SpanRecorder& recorder_;
  SpanKind kind_;
  CollectiveLog log_;
};

}  // namespace troupe
