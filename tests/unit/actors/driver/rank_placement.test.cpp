#include "actors/driver/rank_placement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Nodes with so many devices each.
std::vector<NodeSpec> nodes_with(const std::vector<std::pair<std::string, std::size_t>>& devices) {
  std::vector<NodeSpec> nodes;
  for (const auto& [name, count] : devices) nodes.push_back({name, 1, std::vector<int>(count)});
  return nodes;
}

std::vector<int> placed(const MeshShape& shape,
                        const std::vector<std::pair<std::string, std::size_t>>& devices) {
  return *place_ranks(*Mesh::create(shape), nodes_with(devices));
}

TEST(RankPlacement, fills_nodes_in_mesh_order) {
  EXPECT_THAT(placed({.pipeline = 2, .tensor = 2}, {{"a", 2}, {"b", 2}}), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(placed({.data = 3}, {{"a", 2}, {"b", 2}}), ElementsAre(0, 0, 1));
  EXPECT_THAT(placed({.tensor = 2}, {{"a", 8}, {"b", 8}}), ElementsAre(0, 0));
}

TEST(RankPlacement, keeps_a_tensor_group_that_fits_on_one_node) {
  EXPECT_THAT(placed({.pipeline = 2, .tensor = 2}, {{"a", 3}, {"b", 2}}), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(placed({.pipeline = 2, .tensor = 2}, {{"a", 1}, {"b", 4}}), ElementsAre(1, 1, 1, 1));
}

TEST(RankPlacement, keeps_a_step_domain_that_fits_on_one_node) {
  EXPECT_THAT(placed({.data = 2, .pipeline = 2}, {{"a", 3}, {"b", 3}}), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(placed({.data = 2, .pipeline = 2}, {{"a", 1}, {"b", 3}}), ElementsAre(1, 1, 0, 1));
}

TEST(RankPlacement, numbers_bundles_within_a_step_domain) {
  const Mesh mesh = *Mesh::create({.data = 2, .pipeline = 2});
  const auto bundles = worker_bundles(mesh, nodes_with({{"a", 4}}));
  EXPECT_EQ(bundles, std::vector<Resources>(2, {.devices = 1}));
  EXPECT_EQ(bundle_of(mesh, 2, bundles.size()), 0U);
  EXPECT_EQ(bundle_of(mesh, 3, bundles.size()), 1U);
  std::vector<PlacementGroup> groups(2);
  groups[0].bundles = {{.resources = {}, .node = "a"}, {.resources = {}, .node = "b"}};
  groups[1].bundles = {{.resources = {}, .node = "c"}, {.resources = {}, .node = "a"}};
  EXPECT_THAT(nodes_of_ranks(mesh, groups), ElementsAre("a", "b", "c", "a"));
}

TEST(RankPlacement, splits_a_tensor_group_that_fits_on_none) {
  EXPECT_THAT(placed({.tensor = 4}, {{"a", 2}, {"b", 2}}), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(placed({.tensor = 4}, {{"a", 1}, {"b", 1}, {"c", 2}}), ElementsAre(0, 1, 2, 2));
}

TEST(RankPlacement, reserves_a_bundle_for_each_tensor_group_that_fits_on_a_node) {
  const Mesh mesh = *Mesh::create({.pipeline = 3, .tensor = 2});
  const auto groups = worker_bundles(mesh, nodes_with({{"a", 1}, {"b", 2}}));
  EXPECT_EQ(groups, std::vector<Resources>(3, {.devices = 2}));
  EXPECT_EQ(bundle_of(mesh, 1, groups.size()), 0U);
  EXPECT_EQ(bundle_of(mesh, 2, groups.size()), 1U);
  const auto ranks = worker_bundles(mesh, nodes_with({{"a", 1}, {"b", 1}}));
  EXPECT_EQ(ranks, std::vector<Resources>(6, {.devices = 1}));
  EXPECT_EQ(bundle_of(mesh, 5, ranks.size()), 5U);
}

TEST(RankPlacement, takes_nodes_that_join_later_once_the_others_have_no_room) {
  std::vector<NodeSpec> nodes = nodes_with({{"a", 3}, {"later-1", 2}, {"later-2", 2}});
  nodes[1].joins_later = nodes[2].joins_later = true;
  EXPECT_THAT(*place_ranks(*Mesh::create({.data = 3}), nodes), ElementsAre(0, 0, 0));
  // What is left on a node is no place for two, so the second replica waits.
  EXPECT_THAT(*place_ranks(*Mesh::create({.data = 2, .pipeline = 2}), nodes),
              ElementsAre(0, 0, 1, 1));
  const PlacementGroup none = no_places({{.devices = 1}});
  EXPECT_FALSE(has_places(none));
}

TEST(RankPlacement, says_what_does_not_fit) {
  const auto none =
      place_ranks(*Mesh::create({.pipeline = 2, .tensor = 2}), nodes_with({{"a", 3}, {"b", 1}}));
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("4 workers in tensor groups of 2"));
  EXPECT_THAT(none.error().message, HasSubstr("a takes 3, b takes 1"));
}

}  // namespace
}  // namespace troupe
