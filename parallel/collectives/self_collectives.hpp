#pragma once

#include <atomic>

#include "parallel/collectives/collectives.hpp"

namespace troupe {

/// The group of one rank: every call checks its arguments and copies. abort() works as elsewhere.
class SelfCollectives : public Collectives {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
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
  void abort() override;
  bool aborted() const override { return aborted_.load(std::memory_order_acquire); }
  Tensor staging(DType dtype, const Shape& shape) override;

 private:
  Result<void> check_alive() const;

  std::atomic<bool> aborted_{false};
};

}  // namespace troupe
