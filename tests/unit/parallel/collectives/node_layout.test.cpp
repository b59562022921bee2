#include "parallel/collectives/hierarchical/node_layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using ::testing::ElementsAre;
using Nodes = std::vector<int>;

std::vector<int> receivers_on(const NodeLayout& layout, int node) {
  std::vector<int> receivers;
  for (int r = 0; r < layout.size(); ++r) receivers.push_back(layout.receiver(r, node));
  return receivers;
}

TEST(NodeLayout, gives_each_rank_its_place_among_those_of_its_node) {
  const NodeLayout layout(4, Nodes{0, 1, 1, 0, 0});
  EXPECT_THAT(layout.members(0), ElementsAre(0, 3, 4));
  EXPECT_THAT(layout.members(1), ElementsAre(1, 2));
  EXPECT_EQ(layout.own_place(), 2u);
  EXPECT_EQ(layout.place_of(2), 1);
  EXPECT_EQ(layout.fewest_members(), 2u);
}

TEST(NodeLayout, deals_the_ranks_of_a_run_to_the_ranks_of_a_node_in_order) {
  const NodeLayout layout(2, Nodes{0, 0, 1, 1, 2, 2, 2, 2});
  EXPECT_THAT(receivers_on(layout, 1), ElementsAre(2, 3, 2, 3, 2, 2, 3, 3));
  EXPECT_THAT(receivers_on(layout, 0), ElementsAre(0, 1, 0, 0, 0, 1, 1, 1));
}

TEST(NodeLayout, parts_the_ranks_where_those_of_this_node_begin_and_end) {
  const auto runs = NodeLayout(1, Nodes{0, 1, 1, 2, 1}).runs_here();
  std::vector<std::pair<int, int>> ends;
  for (const auto& run : runs) ends.emplace_back(run.begin, run.end);
  EXPECT_THAT(ends,
              ElementsAre(std::pair(0, 1), std::pair(1, 3), std::pair(3, 4), std::pair(4, 5)));
}

}  // namespace
}  // namespace troupe
