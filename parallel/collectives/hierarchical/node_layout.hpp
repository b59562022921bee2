#pragma once

#include <cstddef>
#include <vector>

#include "parallel/collectives/hierarchical/subtrees.hpp"

namespace troupe {

/// Which rank of a group is on which node, as one of the ranks sees it, and what follows from it
/// for collectives in two levels. The same on all ranks but for "here".
class NodeLayout {
 public:
  /// Consecutive ranks [begin, end) that are all on this node, or all on others.
  struct Run {
    int begin = 0;
    int end = 0;
  };

  /// `node_of`: the node of each rank, numbered from 0 without gaps.
  NodeLayout(int rank, std::vector<int> node_of);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(node_of_.size()); }
  int nodes() const { return static_cast<int>(members_.size()); }
  int node_of(int rank) const { return node_of_[static_cast<std::size_t>(rank)]; }
  int own_node() const { return node_of(rank_); }
  bool is_here(int rank) const { return node_of(rank) == own_node(); }
  /// The ranks of a node, in order.
  const std::vector<int>& members(int node) const {
    return members_[static_cast<std::size_t>(node)];
  }
  const std::vector<int>& members_here() const { return members(own_node()); }
  /// A rank's place among those of its node.
  int place_of(int rank) const { return places_[static_cast<std::size_t>(rank)]; }
  std::size_t own_place() const { return static_cast<std::size_t>(place_of(rank_)); }
  /// The ranks of the smallest node: at each of so many places, every node has a rank.
  std::size_t fewest_members() const { return fewest_members_; }

  const std::vector<Subtree>& subtrees() const { return subtrees_; }
  std::size_t subtrees_of(int node) const;

  /// All ranks, in order.
  const std::vector<Run>& runs_here() const { return runs_here_; }
  /// The rank of `node` that receives what `rank` has for the whole node; `rank` itself if it is
  /// on the node. For the ranks of a Run of that node the receivers' places ascend.
  int receiver(int rank, int node) const {
    return receivers_[static_cast<std::size_t>(node)][static_cast<std::size_t>(rank)];
  }

 private:
  std::vector<Run> runs_of(int node) const;

  int rank_;
  std::vector<int> node_of_;
  std::vector<std::vector<int>> members_;  // [node]
  std::vector<int> places_;
  std::size_t fewest_members_ = 0;
  std::vector<Subtree> subtrees_;
  std::vector<Run> runs_here_;
  std::vector<std::vector<int>> receivers_;  // [node][rank]
};

}  // namespace troupe
