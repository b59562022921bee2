#include "runtime/node/placement_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/call/codec.hpp"

namespace troupe {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using enum PlacementStrategy;

PlacementTable two_nodes() { return PlacementTable({{"a", 4, {0, 1}}, {"b", 4, {2, 3}}}); }

TEST(PlacementTable, packs_or_spreads) {
  auto table = two_nodes();
  EXPECT_EQ(table.place({1, 0}, "", pack)->node, 0U);
  EXPECT_EQ(table.place({1, 0}, "", pack)->node, 0U);
  EXPECT_EQ(table.place({1, 0}, "", spread)->node, 1U);
  EXPECT_EQ(table.place({3, 0}, "", pack)->node, 1U)
      << "what does not fit on the first goes to the next";
}

TEST(PlacementTable, gives_each_device_to_one_actor_until_it_is_released) {
  auto table = two_nodes();
  const auto first = table.place({0, 1}, "b", pack);
  const auto second = table.place({0, 1}, "b", pack);
  EXPECT_EQ(first->held.devices, std::vector<int>{2});
  EXPECT_EQ(second->held.devices, std::vector<int>{3});
  const auto refused = table.place({0, 1}, "b", pack);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted);
  EXPECT_EQ(refused.error().message,
            "there is no room for 1 device: 'b' has 0 of 2 devices free (held by actors)");
  table.release(*first);
  EXPECT_EQ(table.place({0, 1}, "b", pack)->held.devices, std::vector<int>{2});
}

TEST(PlacementTable, says_what_there_is_when_nothing_fits) {
  auto table = two_nodes();
  const auto refused = table.place({5, 0}, "", spread);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::unschedulable);
  EXPECT_EQ(refused.error().message,
            "there is no room for 5 cpus: 'a' has 4 of 4 cpus free, 'b' has 4 of 4 cpus free");
  EXPECT_EQ(table.place({}, "c", pack).error().code, ErrorCode::not_found);
  EXPECT_EQ(table.place({-1, 0}, "", pack).error().code, ErrorCode::invalid_argument);
}

TEST(PlacementTable, tells_what_can_never_fit_from_what_is_not_free) {
  auto table = two_nodes();
  const auto code_of = [&](const std::vector<Resources>& bundles, PlacementStrategy strategy) {
    const auto group = table.create_group({"", bundles, strategy});
    return group.ok() ? ErrorCode::internal : group.error().code;
  };
  const Resources all{.cpus = 4}, more{.cpus = 5};
  EXPECT_EQ(code_of({all, more}, spread), ErrorCode::unschedulable);
  EXPECT_EQ(code_of({all, all}, PlacementStrategy::strict_pack), ErrorCode::unschedulable);
  EXPECT_EQ(code_of({{.cpus = 1}, {.cpus = 1}, {.cpus = 1}}, PlacementStrategy::strict_spread),
            ErrorCode::unschedulable);
  ASSERT_TRUE(table.place({.cpus = 1}, "a", pack).ok());
  EXPECT_EQ(code_of({all, all}, spread), ErrorCode::resource_exhausted);
  table.remove_node(1);
  EXPECT_EQ(table.place(all, "", pack).error().code, ErrorCode::resource_exhausted)
      << "a lost node may come back";
  EXPECT_EQ(table.place(more, "a", pack).error().code, ErrorCode::unschedulable);
}

TEST(PlacementTable, leaves_out_lost_nodes) {
  auto table = two_nodes();
  table.remove_node(0);
  EXPECT_EQ(table.place({1, 0}, "", pack)->node, 1U);
  EXPECT_EQ(table.place({1, 0}, "a", pack).error().code, ErrorCode::peer_died);
}

TEST(PlacementTable, takes_the_next_node_in_the_place_of_a_lost_one) {
  auto table = two_nodes();
  table.remove_node(0);
  table.name_node(0, "c");
  EXPECT_EQ(table.place({1, 0}, "c", pack)->node, 0U);
  table.remove_node(0);
  table.name_node(1, "c");  // the same host comes again, and gets another place
  EXPECT_EQ(table.place({1, 0}, "c", pack)->node, 1U);
}

TEST(PlacementTable, counts_memory_and_custom_resources) {
  PlacementTable table({{"a", 1, {}, 1000, {{"licence", 2}}}, {"b", 1, {}}});
  const auto first = table.place({.memory_bytes = 800, .custom = {{"licence", 1}}}, "", pack);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(table.place({.memory_bytes = 800}, "", pack).error().message,
            "there is no room for 800 bytes of memory: 'a' has 200 of 1000 bytes of memory free "
            "(held by actors), 'b' has memory that is not counted");
  EXPECT_EQ(table.place({.custom = {{"licence", 2}}}, "", pack).error().message,
            "there is no room for 2 of 'licence': 'a' has 1 of 2 'licence' free (held by actors), "
            "'b' has 0 of 0 'licence' free");
  EXPECT_EQ(table.place({.custom = {{"licence", -2}}}, "", pack).error().code,
            ErrorCode::invalid_argument);
  table.release(*first);
  EXPECT_TRUE(table.place({.memory_bytes = 1000, .custom = {{"licence", 2}}}, "", pack).ok());
}

TEST(PlacementTable, reserves_all_bundles_of_a_group_or_none) {
  auto table = two_nodes();
  const auto group = table.create_group({"x", {{.devices = 2}, {.cpus = 4, .devices = 1}}, pack});
  ASSERT_TRUE(group.ok()) << group.error().message;
  EXPECT_EQ(group->name, "x");
  EXPECT_EQ(group->bundles[0].node, "a");
  EXPECT_EQ(group->bundles[0].devices, (std::vector<int>{0, 1}));
  EXPECT_EQ(group->bundles[1].node, "b");
  EXPECT_EQ(group->bundles[1].devices, (std::vector<int>{2}));
  EXPECT_THAT(table.groups(), SizeIs(1));

  const auto refused = table.create_group({"y", {{.devices = 1}, {.devices = 1}}, pack});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted);
  const auto single = table.place({.devices = 1}, "", pack);
  ASSERT_TRUE(single.ok()) << "the refused group holds nothing";
  EXPECT_EQ(single->held.devices, std::vector<int>{3});
}

TEST(PlacementTable, describes_groups_as_values_that_can_be_sent) {
  PlacementTable table({{"a", 4, {0, 1}, 1000, {{"licence", 2}}}});
  const auto group = *table.create_group(
      {"x", {{.devices = 1, .memory_bytes = 10, .custom = {{"licence", 1}}}}, strict_pack});
  const auto sent = decode<PlacementGroup>(encode(group));
  ASSERT_TRUE(sent.ok());
  EXPECT_EQ(sent->id, group.id);
  EXPECT_EQ(sent->name, "x");
  EXPECT_EQ(sent->strategy, strict_pack);
  ASSERT_EQ(sent->bundles.size(), 1U);
  EXPECT_EQ(sent->bundles[0].resources, group.bundles[0].resources);
  EXPECT_EQ(sent->bundles[0].node, "a");
  EXPECT_EQ(sent->bundles[0].devices, std::vector<int>{0});
  EXPECT_TRUE(table.place_in({.memory_bytes = 10}, sent->bundle(0)).ok());
}

TEST(PlacementTable, says_for_each_bundle_what_each_node_lacks_and_who_holds_it) {
  PlacementTable table({{"a", 4, {0, 1}}, {"b", 4, {0, 1}}, {"c", 4, {0, 1}}});
  ASSERT_TRUE(table.create_group({"x", {{.devices = 1}}, pack}).ok());
  ASSERT_TRUE(table.place({.cpus = 1}, "a", pack).ok());
  ASSERT_TRUE(table.place({.devices = 1}, "b", pack).ok());
  ASSERT_TRUE(table.create_group({"z", {{.devices = 1}, {.devices = 1}}, spread}).ok());
  table.remove_node(2);
  const auto refused = table.create_group({"y", {{.cpus = 1}, {.cpus = 4, .devices = 2}}, pack});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "there is no room for placement group 'y' (pack, 2 bundles): bundle 1 (2 devices, 4 "
            "cpus): 'a' has 0 of 2 devices free (held by placement groups 'x', 'z') and 3 of 4 "
            "cpus free (held by actors), 'b' has 0 of 2 devices free (held by placement group 'z' "
            "and actors), 'c' is lost");
  const auto apart =
      table.create_group({"", {{.cpus = 2}, {.cpus = 2}, {.cpus = 2}}, strict_spread});
  ASSERT_FALSE(apart.ok());
  EXPECT_EQ(apart.error().message,
            "there is no room for a placement group (strict_spread, 3 bundles): each bundle has "
            "room by itself, but there is not a node for each of them; free: 'a' 3 cpus, 'b' 4 "
            "cpus, 'c' is lost");
}

TEST(PlacementTable, names_few_of_many_nodes_and_bundles) {
  std::vector<NodeSpec> nodes;
  for (int i = 0; i < 300; ++i) nodes.push_back({fmt::format("n{}", i), 1, {}});
  PlacementTable table(nodes);
  const auto refused = table.create_group({"", std::vector<Resources>(300, {.devices = 1}), pack});
  EXPECT_THAT(refused.error().message,
              HasSubstr("'n7' has 0 of 0 devices free and 292 more nodes"));
  EXPECT_THAT(refused.error().message, HasSubstr("and 296 more bundles"));
}

TEST(PlacementTable, refuses_groups_that_ask_for_nothing) {
  auto table = two_nodes();
  const auto code = [&](std::vector<Resources> bundles) {
    return table.create_group({"", std::move(bundles), pack}).error().code;
  };
  EXPECT_EQ(code({}), ErrorCode::invalid_argument);
  EXPECT_EQ(code({{.cpus = 1}, {}}), ErrorCode::invalid_argument);
  EXPECT_EQ(code({{.cpus = -1}}), ErrorCode::invalid_argument);
  ASSERT_TRUE(table.create_group({"x", {{.cpus = 1}}, pack}).ok());
  EXPECT_EQ(table.create_group({"x", {{.cpus = 1}}, pack}).error().code, ErrorCode::already_exists);
}

TEST(PlacementTable, takes_actors_resources_out_of_their_bundle) {
  auto table = two_nodes();
  const auto group = *table.create_group({"x", {{.cpus = 3, .devices = 2}}, pack});
  const auto first = table.place_in({.cpus = 2, .devices = 1}, group.bundle(0));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->held.devices, std::vector<int>{0});
  const auto refused = table.place_in({.cpus = 2}, group.bundle(0));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted);
  EXPECT_EQ(refused.error().message,
            "there is no room for 2 cpus in bundle 0 of placement group 'x', which has 2 devices, "
            "3 cpus; left there: 1 device, 1 cpu");
  table.release(*first);
  EXPECT_TRUE(table.place_in({.cpus = 3, .devices = 2}, group.bundle(0)).ok());
  EXPECT_EQ(table.place_in({}, group.bundle(1)).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(table.place_in({}, {group.id + 1, 0}).error().code, ErrorCode::not_found);
}

TEST(PlacementTable, frees_a_removed_group_once_its_last_actor_is_released) {
  auto table = two_nodes();
  const auto group = *table.create_group({"x", {{.devices = 2}, {.devices = 1}}, pack});
  const auto actor = *table.place_in({.devices = 1}, group.bundle(0));
  ASSERT_TRUE(table.remove_group(group.id).ok());
  EXPECT_THAT(table.groups(), IsEmpty());
  EXPECT_EQ(table.place_in({}, group.bundle(0)).error().code, ErrorCode::not_found);
  EXPECT_EQ(table.remove_group(group.id).error().code, ErrorCode::not_found);
  EXPECT_EQ(table.place({.devices = 2}, "b", pack)->held.devices, (std::vector<int>{2, 3}))
      << "a bundle without actors is free at once";
  EXPECT_THAT(table.place({.devices = 1}, "a", pack).error().message,
              HasSubstr("held by placement group 'x' that is being removed)"));
  table.release(actor);
  EXPECT_EQ(table.place({.devices = 2}, "a", pack)->held.devices, (std::vector<int>{0, 1}));
  EXPECT_TRUE(table.create_group({"x", {{.cpus = 1}}, pack}).ok()) << "the name is free again";
}

TEST(PlacementTable, refuses_groups_that_move_by_strict_strategies) {
  PlacementTable table({{"a", 4, {}}, {"b", 4, {}}});
  const auto refused = table.create_group({.name = "x",
                                           .bundles = {{.cpus = 1}, {.cpus = 1}},
                                           .strategy = PlacementStrategy::strict_spread,
                                           .moves = true});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(refused.error().message.find("strict_spread"), std::string::npos);
}

TEST(PlacementTable, places_lost_bundles_of_a_group_that_moves_where_there_is_room) {
  PlacementTable table({{"a", 4, {0, 1}}, {"b", 4, {2, 3}}, {"c", 4, {4, 5}}});
  const auto group = table.create_group(
      {.name = "x", .bundles = {{.devices = 2}, {.devices = 1}}, .strategy = pack, .moves = true});
  ASSERT_TRUE(group.ok()) << group.error().message;
  ASSERT_EQ(group->bundles[1].node, "b");
  const auto actor = table.place_in({.devices = 2}, group->bundle(0));
  table.remove_node(0);
  const auto early = table.place_again(group->id);
  ASSERT_FALSE(early.ok()) << "its actor is not released";
  EXPECT_EQ(early.error().code, ErrorCode::resource_exhausted);
  table.release(*actor);
  const auto moved = table.place_again(group->id);
  ASSERT_TRUE(moved.ok()) << moved.error().message;
  EXPECT_EQ(moved->bundles[0].node, "c") << "b has one device left";
  EXPECT_EQ(moved->bundles[0].devices, (std::vector<int>{4, 5}));
  EXPECT_FALSE(moved->bundles[0].is_lost);
  EXPECT_EQ(moved->bundles[1].node, "b");
  EXPECT_EQ(table.place_in({.devices = 2}, group->bundle(0))->held.devices,
            (std::vector<int>{4, 5}));
  EXPECT_EQ(table.place_again(group->id)->bundles[0].node, "c") << "nothing is lost any more";
}

TEST(PlacementTable, places_lost_bundles_on_their_node_once_it_is_there_again) {
  auto table = two_nodes();
  const auto group = table.create_group(
      {.name = "x", .bundles = {{.devices = 2}, {.devices = 2}}, .strategy = pack, .moves = true});
  table.remove_node(1);
  const auto refused = table.place_again(group->id);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("'b' is lost"));
  table.name_node(1, "b");
  const auto placed = table.place_again(group->id);
  ASSERT_TRUE(placed.ok()) << placed.error().message;
  EXPECT_EQ(placed->bundles[1].node, "b");
  EXPECT_TRUE(table.remove_group(group->id).ok());
  EXPECT_EQ(table.free_on(1).devices, 2) << "the moved bundle is given back once";
}

TEST(PlacementTable, moves_no_bundles_of_a_group_that_stays) {
  auto table = two_nodes();
  const auto group = table.create_group({.name = "x", .bundles = {{.devices = 2}}});
  EXPECT_EQ(table.place_again(group->id).error().code, ErrorCode::not_found);
}

TEST(PlacementTable, loses_the_bundles_of_a_lost_node_for_good) {
  auto table = two_nodes();
  const auto group = *table.create_group({"x", {{.devices = 2}, {.devices = 1}}, pack});
  const auto actor = *table.place_in({.devices = 1}, group.bundle(0));
  table.remove_node(0);
  const auto refused = table.place_in({}, group.bundle(0));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::peer_died);
  EXPECT_EQ(refused.error().message, "bundle 0 of placement group 'x' is lost with node 'a'");
  EXPECT_TRUE(table.groups()[0].bundles[0].is_lost);
  EXPECT_FALSE(table.groups()[0].bundles[1].is_lost);
  EXPECT_TRUE(table.place_in({.devices = 1}, group.bundle(1)).ok());
  table.release(actor);

  table.name_node(0, "c");  // another agent takes the place of the lost one
  EXPECT_EQ(table.place({.cpus = 4, .devices = 2}, "c", pack)->held.devices,
            (std::vector<int>{0, 1}));
  EXPECT_EQ(table.place_in({}, group.bundle(0)).error().code, ErrorCode::peer_died);
  ASSERT_TRUE(table.remove_group(group.id).ok());
  EXPECT_EQ(table.place({.devices = 1}, "c", pack).error().code, ErrorCode::resource_exhausted)
      << "a lost bundle's devices are not given back twice";
}

TEST(PlacementTable, gives_a_node_on_trial_only_what_names_it) {
  PlacementTable table({{"a", 1, {0}}, {"b", 1, {0}}});
  const auto group =
      table.create_group({.bundles = {{.devices = 1}, {.devices = 1}}, .moves = true});
  ASSERT_TRUE(group.ok());
  table.remove_node(1);
  table.name_node(1, "c", true);
  const auto refused = table.place_again(group->id);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("'c' is being looked at"), std::string::npos)
      << refused.error().message;
  EXPECT_FALSE(table.place({.devices = 1}, "", PlacementStrategy::pack).ok());
  EXPECT_TRUE(table.place({.cpus = 1}, "c", PlacementStrategy::pack).ok());
  table.admit_node(1);
  const auto placed = table.place_again(group->id);
  ASSERT_TRUE(placed.ok()) << placed.error().message;
  EXPECT_EQ(placed->bundles[1].node, "c");
}

TEST(PlacementTable, has_no_room_on_a_node_that_joins_later_before_it_has_joined) {
  PlacementTable table(
      {{.name = "a", .devices = {0}}, {.name = "later-1", .devices = {0}, .joins_later = true}});
  const PlacementGroupOptions one{.bundles = {{.devices = 1}}};
  EXPECT_EQ(table.create_group(one)->bundles[0].node, "a");
  const auto refused = table.create_group(one);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("'later-1' has not joined"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(table.free_on(1).devices, 0);
  EXPECT_EQ(table.place({}, "later-1", PlacementStrategy::pack).error().code, ErrorCode::peer_died);
  table.name_node(1, "b", true);
  EXPECT_FALSE(table.create_group(one).ok()) << "it is on trial";
  table.admit_node(1);
  EXPECT_EQ(table.create_group(one)->bundles[0].node, "b");
}

TEST(PlacementTable, tells_a_closed_node_from_one_on_trial_and_a_drained_one_from_a_lost_one) {
  PlacementTable table({{"a", 1, {0}}, {"b", 1, {0}}});
  const auto refusal = [&] {
    return table.create_group({.bundles = {{.devices = 1}}}).error().message;
  };
  table.close_node(0);
  table.close_node(1);
  table.admit_node(0);  // that is for one on trial
  EXPECT_NE(refusal().find("'a' is being drained, 'b' is being drained"), std::string::npos);
  EXPECT_TRUE(table.place({.cpus = 1}, "a", PlacementStrategy::pack).ok()) << "it names the node";
  table.remove_node(0);
  EXPECT_NE(refusal().find("'a' was drained, 'b' is being drained"), std::string::npos);
  table.name_node(0, "c");
  table.remove_node(0);
  EXPECT_NE(refusal().find("'c' is lost"), std::string::npos);
  table.close_node(0);  // too late
  EXPECT_NE(refusal().find("'c' is lost"), std::string::npos);
}

TEST(PlacementTable, forgets_the_trial_of_a_node_that_is_lost) {
  PlacementTable table({{"a", 1, {0}}});
  table.name_node(0, "a", true);
  table.remove_node(0);
  table.name_node(0, "a");
  EXPECT_TRUE(table.place({.devices = 1}, "", PlacementStrategy::pack).ok());
}

TEST(PlacementTable, gives_bundles_to_a_spare_node_once_the_others_have_no_room) {
  PlacementTable table({{.name = "a", .devices = {0, 1, 2}},
                        {.name = "b", .devices = {0, 1, 2}},
                        {.name = "spare", .devices = {0, 1, 2}, .is_spare = true}});
  const PlacementGroupOptions two{.bundles = {{.devices = 1}, {.devices = 1}}, .moves = true};
  EXPECT_EQ(table.create_group(two)->bundles[1].node, "a");
  const auto second = table.create_group(two);
  EXPECT_EQ(second->bundles[1].node, "b");
  const auto third = table.create_group(two);
  EXPECT_EQ(third->bundles[0].node, "a") << "it would fit on the spare node as a whole";
  EXPECT_EQ(third->bundles[1].node, "b");
  table.remove_node(1);
  EXPECT_EQ(table.place_again(second->id)->bundles[0].node, "spare");
}

}  // namespace
}  // namespace troupe
