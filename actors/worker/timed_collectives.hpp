#pragma once

#include <memory>

#include "actors/telemetry/span_recorder.hpp"
#include "parallel/collectives/collectives.hpp"

namespace troupe {

/// Collectives that note each call as a span of one kind. All else is `inner`'s.
class TimedCollectives final : public Collectives {
 public:
  /// `recorder` outlives the object; the thread that calls is the one that records.
  TimedCollectives(std::unique_ptr<Collectives> inner, SpanRecorder& recorder, SpanKind kind);

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

 private:
  std::unique_ptr<Collectives> inner_;
  SpanRecorder& recorder_;
  SpanKind kind_;
};

}  // namespace troupe
