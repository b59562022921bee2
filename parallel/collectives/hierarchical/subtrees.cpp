#include "parallel/collectives/hierarchical/subtrees.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "parallel/collectives/tree_sum.hpp"

namespace troupe {
namespace {

constexpr std::size_t block_elements = 512;  // 2 KiB of stack per level of the tree

// Where the tree over the terms [begin, end) divides them.
int middle(int begin, int end) {
  return begin + static_cast<int>(left_terms(static_cast<std::size_t>(end - begin)));
}

void find(std::span<const int> node_of, int begin, int end, std::vector<Subtree>& found) {
  const int node = node_of[static_cast<std::size_t>(begin)];
  const auto ranks =
      node_of.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  if (std::ranges::all_of(ranks, [&](int other) { return other == node; })) {
    found.push_back({begin, end, node});
    return;
  }
  find(node_of, begin, middle(begin, end), found);
  find(node_of, middle(begin, end), end, found);
}

// The elements [at, at + count) of the sum of `subtrees`: in place if there is one, else in `room`.
const float* sum_of(std::span<const Subtree> subtrees, std::span<const float* const> sums,
                    std::size_t at, float* room, std::size_t count) {
  if (subtrees.size() == 1) return sums[0] + at;
  const int divide = middle(subtrees.front().begin, subtrees.back().end);
  const auto right = std::ranges::find_if(
      subtrees, [&](const Subtree& subtree) { return subtree.begin >= divide; });
  const auto left_parts = static_cast<std::size_t>(right - subtrees.begin());
  std::array<float, block_elements> left_room;
  std::array<float, block_elements> right_room;
  const float* const terms[] = {
      sum_of(subtrees.first(left_parts), sums.first(left_parts), at, left_room.data(), count),
      sum_of(subtrees.subspan(left_parts), sums.subspan(left_parts), at, right_room.data(), count)};
  tree_sum(terms, room, count);
  return room;
}

}  // namespace

std::vector<Subtree> largest_subtrees(std::span<const int> node_of) {
  std::vector<Subtree> found;
  find(node_of, 0, static_cast<int>(node_of.size()), found);
  return found;
}

void add_subtrees(std::span<const Subtree> subtrees, std::span<const float* const> sums, float* out,
                  std::size_t count) {
  for (std::size_t at = 0; at < count; at += block_elements) {
    const std::size_t elements = std::min(block_elements, count - at);
    const float* const sum = sum_of(subtrees, sums, at, out + at, elements);
    if (sum != out + at) std::memcpy(out + at, sum, elements * sizeof(float));
  }
}

}  // namespace troupe
