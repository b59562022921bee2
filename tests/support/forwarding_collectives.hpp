#pragma once

#include <memory>
#include <utility>

#include "parallel/collectives/collectives.hpp"

namespace troupe::golden {

/// Forwards every call to another Collectives; for tests that observe some of them.
class ForwardingCollectives : public Collectives {
 public:
  explicit ForwardingCollectives(std::unique_ptr<Collectives> inner) : inner_(std::move(inner)) {}

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

 private:
  std::unique_ptr<Collectives> inner_;
};

}  // namespace troupe::golden
