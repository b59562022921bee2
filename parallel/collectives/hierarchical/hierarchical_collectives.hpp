#pragma once

#include <memory>
#include <span>
#include <vector>

#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/hierarchical/hierarchical_group.hpp"
#include "parallel/collectives/network/network_collectives.hpp"

namespace troupe {

/// Collectives of a group over several nodes, some of which have more than one of its ranks: shared
/// memory within a node, the network across. The same bits as ShmCollectives, whatever rank is on
/// whatever node: a node adds up only whole subtrees of the sum (Subtree), and other terms travel
/// one by one.
///
/// A sum, a gather and a broadcast send each byte to another node once, however many ranks it has;
/// the ranks of a node share that work. All-to-all and messages go from rank to rank.
///
/// Death and abort are noticed as NetworkCollectives notices them, also within a node: every rank
/// has a link to every other one. That a rank has destroyed its object is noticed only by a rank of
/// another node that waits for it; one of its own node waits for the timeout. A call has a few
/// steps, each of which may take the timeout.
/// send() to a rank of this node is that of `node`, else that of `network`.
class HierarchicalCollectives final : public Collectives {
 public:
  /// `node`: the ranks of this node, in their order in the group; null if there is one. `network`:
  /// all ranks. `node_of`: the node of each rank, numbered from 0 without gaps.
  HierarchicalCollectives(std::unique_ptr<Collectives> node,
                          std::unique_ptr<NetworkCollectives> network, std::vector<int> node_of);

  int rank() const override { return group_.network->rank(); }
  int size() const override { return group_.network->size(); }
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
  bool aborted() const override;
  Tensor staging(DType dtype, const Shape& shape) override;
  void set_timeout(std::chrono::milliseconds timeout) override;

 private:
  template <class Body>
  Result<void> run(const Result<void>& checked, const Body& body);

  bool failed_ = false;  ///< a call has failed and reported the error
  HierarchicalGroup group_;
};

}  // namespace troupe
