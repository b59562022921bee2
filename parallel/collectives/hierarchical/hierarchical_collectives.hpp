#pragma once

#include <memory>
#include <span>
#include <vector>

#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/hierarchical/subtrees.hpp"
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
/// has a link to every other one. A call has a few steps, each of which may take the timeout.
/// send() to a rank of this node is that of `node`, else that of `network`.
class HierarchicalCollectives final : public Collectives {
 public:
  /// `node`: the ranks of this node, in their order in the group; null if there is one. `network`:
  /// all ranks. `node_of`: the node of each rank, numbered from 0 without gaps.
  HierarchicalCollectives(std::unique_ptr<Collectives> node,
                          std::unique_ptr<NetworkCollectives> network, std::vector<int> node_of);

  int rank() const override { return network_->rank(); }
  int size() const override { return network_->size(); }
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
  using Floats = std::span<const float>;

  template <class Body>
  Result<void> run(const Result<void>& checked, const Body& body);

  int node_of(int rank) const { return node_of_[static_cast<std::size_t>(rank)]; }
  int own_node() const { return node_of(rank()); }
  /// The ranks of a node, in order.
  const std::vector<int>& members(int node) const {
    return members_[static_cast<std::size_t>(node)];
  }
  /// A rank's place among those of its node.
  int place_of(int rank) const { return places_[static_cast<std::size_t>(rank)]; }
  std::size_t subtrees_of(int node) const;

  /// The sums of this node's subtrees over this rank's share of the elements, one after another.
  /// `shares`: how many consecutive elements each rank of the node takes. May refer to `partial`,
  /// or to memory that the next call of this function overwrites.
  Result<Floats> sum_subtrees(Floats partial, std::span<const std::size_t> shares);
  Result<void> all_reduce(Floats partial, std::span<float> sum, const CollectiveCall& call);
  Result<void> reduce_scatter(Floats partial, std::span<float> sum,
                              std::span<const std::size_t> elements_per_rank,
                              const CollectiveCall& call);
  Result<void> gather(std::span<const std::byte> part, std::span<std::byte> all,
                      std::span<const std::size_t> bytes_per_rank, const CollectiveCall& call);
  Result<void> exchange(std::span<const std::byte> send, std::span<const std::size_t> send_bytes,
                        std::span<std::byte> receive, std::span<const std::size_t> receive_bytes,
                        const CollectiveCall& call);

  std::unique_ptr<Collectives> node_;
  std::vector<int> node_of_;
  std::vector<std::vector<int>> members_;
  std::vector<int> places_;
  std::vector<Subtree> subtrees_;
  std::size_t sum_carriers_ =
      0;  ///< the ranks of each node that all-reduces share the network with
  bool failed_ = false;
  HostTensor leaves_, partial_sums_, received_;
  std::unique_ptr<NetworkCollectives> network_;  ///< ends first: it may abort node_
};

}  // namespace troupe
