#include "runtime/node/place_bundles.hpp"

#include <algorithm>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using ::testing::ElementsAre;
using enum PlacementStrategy;
using Nodes = std::vector<std::size_t>;

std::vector<Resources> devices(const std::vector<int>& amounts) {
  std::vector<Resources> all;
  for (const int amount : amounts) all.push_back({.devices = amount});
  return all;
}

std::optional<Nodes> placed(const std::vector<int>& bundles, const std::vector<int>& free,
                            PlacementStrategy strategy) {
  return place_bundles(devices(bundles), devices(free), strategy);
}

TEST(PlaceBundles, packs_onto_the_first_node_with_room_for_all) {
  EXPECT_THAT(*placed({1, 1}, {1, 2, 4}, pack), ElementsAre(1, 1));
  EXPECT_THAT(*placed({1, 1}, {1, 2, 4}, strict_pack), ElementsAre(1, 1));
}

TEST(PlaceBundles, packs_in_the_given_order_if_no_node_has_room_for_all) {
  EXPECT_THAT(*placed({1, 2, 2}, {3, 2}, pack), ElementsAre(0, 0, 1));
  EXPECT_FALSE(placed({1, 2, 2}, {3, 2}, strict_pack));
}

TEST(PlaceBundles, packs_large_bundles_first_if_the_given_order_leads_nowhere) {
  EXPECT_THAT(*placed({1, 1, 2, 2}, {2, 2, 2}, pack), ElementsAre(0, 0, 1, 2));
  EXPECT_THAT(*placed({1, 3, 1}, {3, 2}, pack), ElementsAre(1, 0, 1));
}

TEST(PlaceBundles, spreads_over_as_many_nodes_as_there_are) {
  EXPECT_THAT(*placed({1, 1, 1}, {4, 4, 4}, spread), ElementsAre(0, 1, 2));
  EXPECT_THAT(*placed({1, 1, 1, 1}, {4, 4}, spread), ElementsAre(0, 1, 0, 1));
  EXPECT_FALSE(placed({1, 1, 1}, {4, 4}, strict_spread));
}

TEST(PlaceBundles, spreads_large_bundles_first_if_the_given_order_leads_nowhere) {
  EXPECT_THAT(*placed({1, 1, 4}, {4, 2}, spread), ElementsAre(1, 1, 0));
}

TEST(PlaceBundles, moves_bundles_for_others_that_fit_on_fewer_nodes) {
  EXPECT_THAT(*placed({1, 2, 3}, {3, 2, 1}, strict_spread), ElementsAre(2, 1, 0));
  EXPECT_THAT(*placed({1, 2, 3}, {3, 2, 1}, spread), ElementsAre(2, 1, 0));
}

TEST(PlaceBundles, heeds_each_resource) {
  const std::vector<Resources> bundles{{.cpus = 1, .custom = {{"licence", 1}}},
                                       {.devices = 1, .memory_bytes = 10}};
  const std::vector<Resources> free{{.cpus = 9, .devices = 9, .memory_bytes = 9},
                                    {.devices = 1, .memory_bytes = 10},
                                    {.cpus = 1, .custom = {{"licence", 1}}}};
  EXPECT_THAT(*place_bundles(bundles, free, pack), ElementsAre(2, 1));
  EXPECT_FALSE(place_bundles(bundles, free, strict_pack));
}

/// All assignments of a few bundles to a few nodes that do not exceed what is free.
std::vector<Nodes> all_assignments(const std::vector<Resources>& bundles,
                                   const std::vector<Resources>& free) {
  std::vector<Nodes> found;
  Nodes nodes(bundles.size(), 0);
  while (true) {
    std::vector<Resources> used(free.size());
    for (std::size_t i = 0; i < bundles.size(); ++i) used[nodes[i]] += bundles[i];
    bool fits = true;
    for (std::size_t i = 0; i < free.size(); ++i) fits = fits && free[i].covers(used[i]);
    if (fits) found.push_back(nodes);
    std::size_t digit = 0;
    while (digit < nodes.size() && ++nodes[digit] == free.size()) nodes[digit++] = 0;
    if (digit == nodes.size()) return found;
  }
}

std::size_t distinct(const Nodes& nodes) { return std::set(nodes.begin(), nodes.end()).size(); }

TEST(PlaceBundles, agrees_with_trying_everything) {
  constexpr std::mt19937::result_type seed = 20;
  std::mt19937 random(seed);
  const auto draw = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
  std::size_t possible = 0, packed = 0, spread_out = 0, apart = 0, together = 0;
  for (int round = 0; round < 4000; ++round) {
    std::vector<Resources> bundles(static_cast<std::size_t>(1 + draw(4)));
    std::vector<Resources> free(static_cast<std::size_t>(1 + draw(3)));
    for (auto& bundle : bundles) {
      bundle = {.cpus = draw(2), .devices = draw(3), .custom = {{"x", draw(1)}}};
    }
    for (auto& node : free) {
      node = {.cpus = draw(5), .devices = draw(6), .memory_bytes = draw(1), .custom = {}};
      if (draw(3) != 0) node.custom["x"] = draw(4);
    }
    const auto all = all_assignments(bundles, free);
    const auto exists = [&](std::size_t nodes) {
      return std::ranges::any_of(all, [&](const Nodes& one) { return distinct(one) == nodes; });
    };
    const auto place = [&](PlacementStrategy strategy) {
      auto found = place_bundles(bundles, free, strategy);
      EXPECT_TRUE(!found || std::ranges::find(all, *found) != all.end())
          << name_of(strategy) << " exceeds a node in round " << round << " of seed " << seed;
      return found;
    };
    const auto on_one = place(strict_pack), each = place(strict_spread);
    ASSERT_EQ(on_one.has_value(), exists(1)) << "round " << round << " of seed " << seed;
    ASSERT_EQ(each.has_value(), exists(bundles.size())) << "round " << round << " of seed " << seed;
    EXPECT_TRUE(!on_one || distinct(*on_one) == 1);
    EXPECT_TRUE(!each || distinct(*each) == bundles.size());
    const auto some_pack = place(pack), some_spread = place(spread);
    EXPECT_TRUE(!on_one || some_pack == on_one);
    EXPECT_TRUE(!each || some_spread == each);
    possible += all.empty() ? 0 : 1;
    packed += some_pack ? 1 : 0;
    spread_out += some_spread ? 1 : 0;
    apart += each ? 1 : 0;
    together += on_one ? 1 : 0;
  }
  EXPECT_GT(apart, 300U);
  EXPECT_GT(together, 300U);
  EXPECT_GE(packed * 100, possible * 95) << "pack finds almost all that can be placed";
  EXPECT_GE(spread_out * 100, possible * 90) << "spread finds almost all that can be placed";
}

}  // namespace
}  // namespace troupe
