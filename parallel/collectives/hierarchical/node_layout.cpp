#include "parallel/collectives/hierarchical/node_layout.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

NodeLayout::NodeLayout(int rank, std::vector<int> node_of)
    : rank_(rank),
      node_of_(std::move(node_of)),
      members_(static_cast<std::size_t>(std::ranges::max(node_of_)) + 1),
      subtrees_(largest_subtrees(node_of_)) {
  for (int r = 0; r < size(); ++r) {
    auto& ranks = members_[static_cast<std::size_t>(this->node_of(r))];
    places_.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(r);
  }
  fewest_members_ = std::ranges::min_element(members_, {}, &std::vector<int>::size)->size();
  runs_here_ = runs_of(own_node());
  for (int node = 0; node < nodes(); ++node) {
    auto& receivers = receivers_.emplace_back();
    const auto takers = static_cast<int>(members(node).size());
    for (const Run& run : runs_of(node)) {
      for (int r = run.begin; r < run.end; ++r) {
        const int place = (r - run.begin) * takers / (run.end - run.begin);
        receivers.push_back(
            this->node_of(r) == node ? r : members(node)[static_cast<std::size_t>(place)]);
      }
    }
  }
}

std::vector<NodeLayout::Run> NodeLayout::runs_of(int node) const {
  std::vector<Run> runs;
  for (int r = 0; r < size(); ++r) {
    const bool goes_on = r > 0 && (node_of(r) == node) == (node_of(r - 1) == node);
    if (!goes_on) runs.push_back({r, r});
    ++runs.back().end;
  }
  return runs;
}

std::size_t NodeLayout::subtrees_of(int node) const {
  return static_cast<std::size_t>(std::ranges::count(subtrees_, node, &Subtree::node));
}

}  // namespace troupe
