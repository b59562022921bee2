#include "runtime/node/placement_table.hpp"

#include <gtest/gtest.h>

namespace troupe {

PlacementTable two_nodes() { return PlacementTable({{"a", 4, {0, 1}}, {"b", 4, {2, 3}}}); }

TEST(PlacementTable, packs_or_spreads) {
  auto table = two_nodes();
  EXPECT_EQ(table.place({1, 0}, "", Placement::pack)->node, 0U);
  EXPECT_EQ(table.place({1, 0}, "", Placement::pack)->node, 0U);
  EXPECT_EQ(table.place({1, 0}, "", Placement::spread)->node, 1U);
  EXPECT_EQ(table.place({3, 0}, "", Placement::pack)->node, 1U)
      << "what does not fit on the first goes to the next";
}

TEST(PlacementTable, gives_each_device_to_one_actor_until_it_is_released) {
  auto table = two_nodes();
  const auto first = table.place({0, 1}, "b", Placement::pack);
  const auto second = table.place({0, 1}, "b", Placement::pack);
  EXPECT_EQ(first->devices, std::vector<int>{2});
  EXPECT_EQ(second->devices, std::vector<int>{3});
  const auto refused = table.place({0, 1}, "b", Placement::pack);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted);
  EXPECT_EQ(refused.error().message,
            "0 cpus and 1 devices do not fit on node 'b'; free there: 4 of 4 cpus, 0 of 2 devices");
  table.release(*first);
  EXPECT_EQ(table.place({0, 1}, "b", Placement::pack)->devices, std::vector<int>{2});
}

TEST(PlacementTable, says_what_there_is_when_nothing_fits) {
  auto table = two_nodes();
  const auto refused = table.place({5, 0}, "", Placement::spread);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("'a' with 4 of 4 cpus, 2 of 2 devices"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(table.place({}, "c", Placement::pack).error().code, ErrorCode::not_found);
  EXPECT_EQ(table.place({-1, 0}, "", Placement::pack).error().code, ErrorCode::invalid_argument);
}

TEST(PlacementTable, leaves_out_lost_nodes) {
  auto table = two_nodes();
  table.remove_node(0);
  EXPECT_EQ(table.place({1, 0}, "", Placement::pack)->node, 1U);
  EXPECT_EQ(table.place({1, 0}, "a", Placement::pack).error().code, ErrorCode::peer_died);
}

TEST(PlacementTable, takes_the_next_node_in_the_place_of_a_lost_one) {
  auto table = two_nodes();
  table.remove_node(0);
  table.name_node(0, "c");
  EXPECT_EQ(table.place({1, 0}, "c", Placement::pack)->node, 0U);
  table.remove_node(0);
  table.name_node(1, "c");  // the same host comes again, and gets another place
  EXPECT_EQ(table.place({1, 0}, "c", Placement::pack)->node, 1U);
}

}  // namespace troupe
