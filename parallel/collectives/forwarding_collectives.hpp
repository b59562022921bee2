#pragma once

#include <memory>
#include <utility>

#include "parallel/collectives/collectives.hpp"

namespace troupe {

/// Collectives that pass every call that all implementations have on to others, the inner ones, for
/// classes that observe or change some of them. What only some implementations have (fused norms,
/// what is opened) is as the defaults of Collectives. Threads: as Collectives.
class ForwardingCollectives : public Collectives {
 public:
  explicit ForwardingCollectives(std::shared_ptr<Collectives> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
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
  void abort() override { inner_->abort(); }
  bool aborted() const override { return inner_->aborted(); }
  Tensor staging(DType dtype, const Shape& shape) override { return inner_->staging(dtype, shape); }

 protected:
  Collectives& inner() { return *inner_; }
  const Collectives& inner() const { return *inner_; }
  bool has_inner() const { return inner_ != nullptr; }
  /// Not while another call runs; null: no call may follow before the next set_inner().
  void set_inner(std::shared_ptr<Collectives> inner) { inner_ = std::move(inner); }

 private:
  std::shared_ptr<Collectives> inner_;
};

}  // namespace troupe
