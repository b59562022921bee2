#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace troupe {

/// A subtree of tree_sum.hpp's sum over all ranks: the terms of ranks [begin, end), which are all
/// on one node.
struct Subtree {
  int begin = 0;
  int end = 0;
  int node = 0;
};

/// The largest subtrees whose ranks share a node, in order of rank: what each node can add up on
/// its own without changing the order of the sum. `node_of`: of each rank, from 0.
std::vector<Subtree> largest_subtrees(std::span<const int> node_of);

/// Adds the sums of all these subtrees: out[i] = the sum over all ranks, for i in [0, count).
/// sums[t] has the `count` elements of subtrees[t]. `out` must not overlap them.
void add_subtrees(std::span<const Subtree> subtrees, std::span<const float* const> sums, float* out,
                  std::size_t count);

}  // namespace troupe
