#include "runtime/actor/actor_registry.hpp"

#include <algorithm>
#include <chrono>
#include <functional>

#include <gtest/gtest.h>

namespace troupe {

TEST(ActorRegistry, forgets_a_process_that_could_not_be_started) {
  ActorRegistry registry({{"node", 4, {0, 1}}}, PlacementStrategy::pack, {});
  std::optional<Error> outcome;
  const auto admitted = registry.admit({.resources = {.devices = 2}, .process = "p"}, "A", {},
                                       [&](const Result<ActorAddress>& address) {
                                         if (!address.ok()) outcome = address.error();
                                       });
  ASSERT_TRUE(admitted.ok());
  EXPECT_TRUE(admitted->starts_process);
  EXPECT_EQ(registry.process_count(), 1U);
  registry.on_failed({admitted->address.id, ErrorCode::io, "no fork"});
  EXPECT_TRUE(registry.on_process_ended({.process = admitted->process}).empty());
  ASSERT_TRUE(outcome.has_value());
  EXPECT_NE(outcome->message.find("no fork"), std::string::npos) << outcome->message;
  EXPECT_EQ(registry.process_count(), 0U);
}

TEST(ActorRegistry, fails_actors_that_wait_for_a_process_that_could_not_be_started) {
  ActorRegistry registry({{"node", 4, {0, 1}}}, PlacementStrategy::pack, {});
  std::vector<std::string> outcomes;
  const auto done = [&](const Result<ActorAddress>& address) {
    outcomes.push_back(address.ok() ? "started" : address.error().message);
  };
  const auto first = registry.admit({.process = "p"}, "A", {}, done);
  const auto second = registry.admit({.name = "late", .process = "p"}, "A", {}, done);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_FALSE(second->starts_process);
  EXPECT_EQ(second->process, first->process);
  registry.on_failed({first->address.id, ErrorCode::io, "no fork"});
  (void)registry.on_process_ended({.process = first->process});
  ASSERT_EQ(outcomes.size(), 2U);
  EXPECT_NE(outcomes[1].find("'late'"), std::string::npos) << outcomes[1];
  EXPECT_NE(outcomes[1].find("could not be started"), std::string::npos) << outcomes[1];
  const auto third = registry.admit({.process = "p"}, "A", {}, done);
  ASSERT_TRUE(third.ok());
  EXPECT_TRUE(third->starts_process);
  EXPECT_NE(third->process, first->process) << "an id is never given out twice";
}

TEST(ActorRegistry, ends_the_actors_of_a_process_and_of_a_node_and_no_others) {
  ActorRegistry registry({{"a", 0, {}}, {"b", 0, {}}}, PlacementStrategy::pack, {});
  const auto start = [&](const std::string& node, const std::string& label) {
    const auto admitted =
        registry.admit({.node = node, .process = label}, "A", {}, [](const auto&) {});
    registry.on_started({admitted->address.id, "endpoint", 7});
    return *admitted;
  };
  const auto first = start("a", "p");
  const auto second = start("a", "p");
  const auto elsewhere = start("b", "p");
  const auto alone = start("a", "");
  EXPECT_EQ(first.process, second.process);
  EXPECT_NE(first.process, elsewhere.process) << "a label is of one node";

  const auto killed = registry.on_process_ended({first.process, 7, true, false, 9});
  ASSERT_EQ(killed.size(), 2U);
  EXPECT_EQ(killed[0].id, first.address.id);
  EXPECT_EQ(killed[1].id, second.address.id);
  EXPECT_TRUE(registry.on_process_ended({first.process, 7, true, false, 9}).empty());
  const auto anew = start("a", "p");
  EXPECT_TRUE(anew.starts_process);

  const auto lost = registry.on_node_lost(0, "is gone");
  ASSERT_EQ(lost.size(), 2U);
  EXPECT_EQ(lost[0].id, alone.address.id);
  EXPECT_EQ(lost[1].id, anew.address.id);
  EXPECT_EQ(registry.process_count(), 1U);
  EXPECT_TRUE(registry.has(elsewhere.address.id));
}

TEST(ActorRegistry, reports_a_process_that_lost_its_last_actor_once) {
  ActorRegistry registry({{"a", 0, {}}}, PlacementStrategy::pack, {});
  const auto first = registry.admit({.process = "p"}, "A", {}, [](const auto&) {});
  const auto second = registry.admit({.process = "p"}, "A", {}, [](const auto&) {});
  for (const auto& admitted : {first, second}) {
    registry.on_started({admitted->address.id, "endpoint", 7});
  }
  (void)registry.on_ended({first->address.id, false, ""});
  EXPECT_TRUE(registry.take_idle_processes().empty()) << "one actor is left";
  (void)registry.on_ended({second->address.id, false, ""});
  const auto idle = registry.take_idle_processes();
  ASSERT_EQ(idle.size(), 1U);
  EXPECT_EQ(idle[0].process, first->process);
  EXPECT_TRUE(registry.take_idle_processes().empty());
  const auto third = registry.admit({.process = "p"}, "A", {}, [](const auto&) {});
  EXPECT_TRUE(third->starts_process) << "the idle one takes no actors";
}

TEST(ActorRegistry, remembers_how_the_latest_actors_ended_and_that_older_ones_did) {
  ActorRegistry registry({{"a", 0, {}}}, PlacementStrategy::pack, {});
  constexpr ActorId count = 5000;
  for (ActorId id = 1; id <= count; ++id) {
    const auto address = registry.admit_local({}, "A", "endpoint", 1);
    ASSERT_EQ((*address)->id, id);
    registry.on_started({id, "endpoint", 1});
    EXPECT_FALSE(registry.down_of(id)) << "it lives";
    (void)registry.on_ended({id, true, "done"});
  }
  EXPECT_EQ(registry.down_of(count)->cause, DownCause::exited);
  const auto old = registry.down_of(1);
  ASSERT_TRUE(old.has_value());
  EXPECT_EQ(old->cause, DownCause::forgotten);
  EXPECT_NE(old->message.find("actor 1 "), std::string::npos) << old->message;
  EXPECT_FALSE(registry.down_of(count + 1)) << "there has never been one";
}

TEST(ActorRegistry, kills_each_process_of_a_removed_group_once) {
  ActorRegistry registry({{"a", 4, {0, 1}}, {"b", 4, {0, 1}}}, PlacementStrategy::pack, {});
  const auto group = *registry.create_placement_group(
      {"x", {{.cpus = 2}, {.cpus = 2}}, PlacementStrategy::strict_spread});
  const auto ignore = [](const Result<ActorAddress>&) {};
  const auto admit = [&](std::optional<BundleId> bundle, const std::string& process) {
    return *registry.admit({.resources = {.cpus = 1}, .bundle = bundle, .process = process}, "A",
                           {}, ignore);
  };
  const auto shared = admit(group.bundle(1), "p");
  EXPECT_EQ(shared.node, 1U);
  EXPECT_EQ(admit(group.bundle(1), "p").process, shared.process);
  const auto other = admit(std::nullopt, "q");
  EXPECT_EQ(admit(group.bundle(0), "p").node, 0U) << "a label is shared within a node";
  EXPECT_EQ(registry.admit({.node = "a", .bundle = group.bundle(1)}, "A", {}, ignore).error().code,
            ErrorCode::invalid_argument);

  const auto doomed = registry.remove_placement_group(group.id);
  ASSERT_TRUE(doomed.ok());
  EXPECT_EQ(doomed->size(), 2U);
  for (const auto& place : *doomed) EXPECT_NE(place.process, other.process);
  EXPECT_NE(admit(std::nullopt, "p").process, shared.process) << "nobody joins a dying process";
  EXPECT_EQ(registry.admit({.bundle = group.bundle(0)}, "A", {}, ignore).error().code,
            ErrorCode::not_found);
  const PlacementGroupOptions all{"y", {{.cpus = 4}}, PlacementStrategy::pack};
  EXPECT_FALSE(registry.create_placement_group(all).ok()) << "the actors have not ended yet";
  for (const auto& place : *doomed)
    (void)registry.on_process_ended({place.process, 1, true, false, 9});
  EXPECT_TRUE(registry.create_placement_group(all).ok());
}

TEST(ActorRegistry, restarts_an_actor_where_there_is_room_until_its_restarts_are_used_up) {
  ActorRegistry registry({{"a", 1, {}}, {"b", 1, {}}}, PlacementStrategy::pack, {});
  const auto admitted = registry.admit({.name = "x", .resources = {.cpus = 1}, .max_restarts = 2},
                                       "A", {encode(7), {}}, [](const auto&) {});
  const ActorId id = admitted->address.id;
  EXPECT_FALSE(registry.on_started({id, "first", 7})) << "the spawner hears of it by `done`";
  EXPECT_TRUE(registry.admit({.resources = {.cpus = 1}}, "A", {}, [](const auto&) {}).ok());

  const auto lost = registry.on_node_lost(0, "is gone");
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_TRUE(lost[0].restarts);
  EXPECT_EQ(lost[0].incarnation, 0U);
  EXPECT_TRUE(registry.has(id));
  EXPECT_FALSE(registry.address_of(id)) << "it is between two incarnations";
  EXPECT_EQ(registry.process_of(id).error().code, ErrorCode::not_found);
  EXPECT_EQ(registry.admit({.name = "x"}, "A", {}, [](const auto&) {}).error().code,
            ErrorCode::already_exists)
      << "it keeps its name";
  const auto due = registry.take_restarts();
  ASSERT_EQ(due.size(), 1U);
  EXPECT_EQ(due[0].actor, id);

  const auto full = registry.admit_again(id, 1);
  ASSERT_FALSE(full.ok()) << "the other node is full";
  const auto again = registry.on_failed({id, full.error().code, full.error().message});
  ASSERT_EQ(again.size(), 1U);
  EXPECT_TRUE(again[0].restarts);
  EXPECT_NE(again[0].message.find("no room for 1 cpu"), std::string::npos) << again[0].message;
  EXPECT_GE(registry.take_restarts().at(0).due, due[0].due + RestartBudget::first_delay);

  const auto over = registry.on_failed({id, full.error().code, full.error().message});
  ASSERT_EQ(over.size(), 1U);
  EXPECT_FALSE(over[0].restarts);
  EXPECT_EQ(over[0].cause, DownCause::not_restarted);
  EXPECT_FALSE(registry.has(id));
  EXPECT_TRUE(registry.take_restarts().empty());
  EXPECT_EQ(registry.down_of(id)->incarnation, over[0].incarnation);
}

TEST(ActorRegistry, gives_a_restarted_actor_its_arguments_and_the_next_incarnation) {
  ActorRegistry registry({{"a", 0, {}}}, PlacementStrategy::pack, {});
  const auto first = registry.admit({.process = "p", .max_restarts = -1}, "A", {encode(7), {}},
                                    [](const auto&) {});
  const ActorId id = first->address.id;
  (void)registry.on_started({id, "first", 7});
  for (std::uint32_t incarnation = 1; incarnation < 20; ++incarnation) {
    const auto process = registry.process_of(id)->process;
    const auto downs = registry.on_process_ended({process, 7, true, false, 9});
    ASSERT_EQ(downs.size(), 1U);
    EXPECT_TRUE(downs[0].restarts);
    EXPECT_EQ(downs[0].incarnation, incarnation - 1);
    const auto again = registry.admit_again(id, incarnation);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again->arguments, encode(7));
    EXPECT_EQ(again->admission.address.incarnation, incarnation);
    EXPECT_TRUE(again->admission.starts_process);
    const auto there = registry.on_started({id, "next", 8});
    ASSERT_TRUE(there.has_value());
    EXPECT_EQ(there->endpoint, "next");
  }
  EXPECT_TRUE(registry.forbid_restarts(id).empty()) << "it lives";
  const auto process = registry.process_of(id)->process;
  EXPECT_FALSE(registry.on_process_ended({process, 7, true, false, 9}).at(0).restarts);
}

TEST(ActorRegistry, keeps_the_objects_of_arguments_as_long_as_an_actor_may_be_restarted) {
  ActorRegistry registry({{"a", 0, {}}}, PlacementStrategy::pack, {});
  auto object =
      std::make_shared<const ObjectShare>(ObjectAddress{}, std::shared_ptr<ObjectStore>());
  const std::weak_ptr<const ObjectShare> kept = object;
  const auto admitted = registry.admit({.process = "p", .max_restarts = 1}, "A",
                                       {Bytes(), {std::move(object)}}, [](const auto&) {});
  const ActorId id = admitted->address.id;
  (void)registry.on_started({id, "first", 7});
  ASSERT_TRUE(registry.on_process_ended({admitted->process, 7, true, false, 9}).at(0).restarts);
  const auto again = registry.admit_again(id, 1);
  ASSERT_TRUE(again.ok()) << again.error().message;
  (void)registry.on_started({id, "next", 8});
  EXPECT_TRUE(registry.take_unneeded_objects().empty());
  EXPECT_FALSE(kept.expired());
  const auto end = registry.on_process_ended({again->admission.process, 8, true, false, 9});
  EXPECT_FALSE(end.at(0).restarts);
  EXPECT_EQ(registry.take_unneeded_objects().size(), 1U);
  EXPECT_TRUE(kept.expired());
}

TEST(ActorRegistry, restarts_an_actor_in_its_bundle_and_not_after_the_group_is_removed) {
  ActorRegistry registry({{"a", 1, {}}, {"b", 1, {}}}, PlacementStrategy::pack, {});
  const auto group = *registry.create_placement_group(
      {"x", {{.cpus = 1}, {.cpus = 1}}, PlacementStrategy::strict_spread});
  std::vector<ActorId> actors;
  for (const std::uint32_t bundle : {0U, 1U}) {
    const auto admitted = registry.admit(
        {.resources = {.cpus = 1}, .bundle = group.bundle(bundle), .max_restarts = -1}, "A", {},
        [](const auto&) {});
    actors.push_back(admitted->address.id);
    (void)registry.on_started({actors.back(), "endpoint", 7});
  }
  const auto kill = [&](ActorId actor) {
    return registry.on_process_ended({registry.process_of(actor)->process, 7, true, false, 9});
  };
  EXPECT_TRUE(kill(actors[1]).at(0).restarts);
  EXPECT_EQ(registry.admit_again(actors[1], 1)->admission.node, 1U);
  (void)registry.on_started({actors[1], "endpoint", 8});
  EXPECT_TRUE(kill(actors[1]).at(0).restarts);

  EXPECT_EQ(registry.remove_placement_group(group.id)->size(), 1U) << "one of them is not there";
  EXPECT_FALSE(kill(actors[0]).at(0).restarts);
  const auto again = registry.admit_again(actors[1], 2);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ErrorCode::peer_died) << again.error().message;
  const auto over = registry.on_failed({actors[1], again.error().code, again.error().message});
  EXPECT_FALSE(over.at(0).restarts);
}

TEST(ActorRegistry, does_not_let_a_delayed_restart_begin_a_later_incarnation) {
  ActorRegistry registry({{"a", 1, {}}}, PlacementStrategy::pack, {});
  const auto group = *registry.create_placement_group({.bundles = {{.cpus = 1}}, .moves = true});
  const auto admitted = registry.admit({.resources = {.cpus = 1},
                                        .bundle = group.bundle(0),
                                        .max_restarts = -1,
                                        .restarts_after_exit = true},
                                       "A", {}, [](const auto&) {});
  const ActorId id = admitted->address.id;
  (void)registry.on_started({id, "endpoint", 7});
  EXPECT_TRUE(registry.on_node_lost(0, "is gone").at(0).restarts);
  const auto delayed = registry.take_restarts();
  ASSERT_EQ(delayed.size(), 1U);
  registry.name_node(0, "a");
  ASSERT_TRUE(registry.place_again(group.id).ok());
  const auto at_once = registry.take_restarts();
  ASSERT_EQ(at_once.size(), 1U);
  ASSERT_TRUE(registry.admit_again(id, at_once[0].incarnation).ok());
  (void)registry.on_started({id, "endpoint", 8});
  // It ends itself: its process holds the cpu until it has ended, too.
  EXPECT_TRUE(registry.on_ended({id, true, "enough"}).at(0).restarts);
  const auto again = registry.admit_again(id, delayed[0].incarnation);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ErrorCode::not_found) << again.error().message;
  EXPECT_EQ(registry.counts().restarting, 1U) << "it is not given up";
}

TEST(ActorRegistry, lets_nobody_join_a_process_that_ends_with_its_only_actor) {
  ActorRegistry registry({{"a", 0, {}}}, PlacementStrategy::pack, {});
  const auto first = registry.admit({.process = "p"}, "A", {}, [](const auto&) {});
  const auto second = registry.admit({.process = "p"}, "A", {}, [](const auto&) {});
  for (const auto& admitted : {first, second}) {
    (void)registry.on_started({admitted->address.id, "endpoint", 7});
  }
  EXPECT_FALSE(registry.close_process_of(first->address.id)) << "there is another one in it";
  (void)registry.on_ended({second->address.id, false, ""});
  EXPECT_TRUE(registry.close_process_of(first->address.id));
  const auto third = registry.admit({.process = "p"}, "A", {}, [](const auto&) {});
  EXPECT_NE(third->process, first->process);
}

TEST(ActorRegistry, loses_what_an_actor_owns_with_it_and_frees_the_names) {
  ActorRegistry registry({{"a", 0, {}}}, PlacementStrategy::pack, {});
  const auto spawn = [&](const SpawnOptions& options, ActorId owner) {
    const auto admitted = registry.admit(options, "A", {}, [](const auto&) {}, owner);
    if (!admitted.ok()) return ActorId{0};
    (void)registry.on_started({admitted->address.id, "endpoint", 7});
    return admitted->address.id;
  };
  const ActorId owner = spawn({}, 0), child = spawn({.name = "child"}, owner);
  const ActorId detached = spawn({.name = "detached", .is_detached = true}, owner);
  EXPECT_TRUE(registry.owns(owner, child));
  EXPECT_FALSE(registry.owns(owner, detached));
  EXPECT_TRUE(registry.take_orphans().empty());
  (void)registry.on_ended({owner, true, "done"});
  EXPECT_EQ(registry.take_orphans(), std::vector<ActorId>{child});
  EXPECT_TRUE(registry.has(child)) << "until it has ended";
  EXPECT_FALSE(registry.find("child", "", "A").ok());
  EXPECT_TRUE(registry.find("detached", "", "A").ok());
  EXPECT_NE(spawn({.name = "child"}, 0), 0U) << "its name is free";
  EXPECT_EQ(spawn({}, owner), 0U) << "the owner is gone";
}

TEST(ActorRegistry, tells_of_its_actors_and_of_ends_in_pages) {
  ActorRegistry registry({{"node", 0, {}}}, PlacementStrategy::pack, {"/logs"});
  constexpr std::size_t living = 600, ended = 300;
  std::vector<ActorId> all;
  for (std::size_t i = 0; i < living + ended; ++i) {
    const auto admitted = registry.admit({.process = "p"}, "A", {}, [](const auto&) {});
    ASSERT_TRUE(admitted.ok());
    registry.on_started({admitted->address.id, "endpoint", 7});
    all.push_back(admitted->address.id);
  }
  for (std::size_t i = 0; i < ended; ++i) {  // every third one
    ASSERT_EQ(registry.on_ended({.actor = all[3 * i], .reason = "enough"}).size(), 1U);
  }
  std::vector<ActorId> told, told_ended;
  AskActors ask{.actors = 1'000'000, .ended = 1'000'000};
  for (bool is_more = true; is_more;) {
    const ActorsReply reply = registry.actor_states(ask);
    EXPECT_LE(reply.actors.size(), max_page);
    EXPECT_LE(reply.ended.size(), max_page);
    EXPECT_EQ(reply.all_actors, living);
    for (const auto& actor : reply.actors) told.push_back(ask.after = actor.id);
    for (const auto& actor : reply.ended) told_ended.push_back(ask.ended_before = actor.id);
    is_more = !reply.actors.empty() || !reply.ended.empty();
  }
  ASSERT_EQ(told.size(), living);
  EXPECT_TRUE(std::ranges::is_sorted(told));
  ASSERT_EQ(told_ended.size(), ended);
  EXPECT_TRUE(std::ranges::is_sorted(told_ended, std::greater())) << "the latest first";
  EXPECT_TRUE(registry.actor_states({.after = all.back(), .actors = 10}).actors.empty());
  EXPECT_TRUE(registry.actor_states({.ended_before = 999'999, .ended = 10}).ended.empty());
  EXPECT_EQ(registry.log_of(std::to_string(all[0]))->node, "node") << "of one that has ended";
}

/// How long 200 placement groups take to come and go, each with an actor that may be restarted,
/// beside other actors, [ms].
double ms_of_groups_beside(int others) {
  ActorRegistry registry({{"node", 2, {}}}, PlacementStrategy::pack, {"/logs"});
  const SpawnOptions options{.process = "p", .max_restarts = 1};
  for (int i = 0; i < others; ++i) {
    EXPECT_TRUE(registry.admit(options, "A", {}, [](const auto&) {}).ok());
  }
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 200; ++i) {
    const auto group = registry.create_placement_group({"", {{.cpus = 1}}});
    SpawnOptions inside = options;
    inside.bundle = group->bundle(0);
    inside.process = std::string("q");
    EXPECT_TRUE(registry.admit(inside, "A", {}, [](const auto&) {}).ok());
    EXPECT_EQ(registry.place_again(group->id).error().code, ErrorCode::not_found);
    const auto doomed = registry.remove_placement_group(group->id);
    EXPECT_EQ(doomed->size(), 1U);
    for (const auto& place : *doomed) registry.on_process_ended({place.process, 7, true, false, 9});
  }
  const auto took = std::chrono::steady_clock::now() - begin;
  return std::chrono::duration<double, std::milli>(took).count();
}

TEST(ActorRegistry, lets_groups_come_and_go_at_a_cost_of_their_own_actors) {
  const double alone = ms_of_groups_beside(0);
  EXPECT_LT(ms_of_groups_beside(50'000), 10 * alone + 20);
}

TEST(ActorRegistry, tells_of_its_placement_groups_in_pages) {
  ActorRegistry registry({{"node", 2'000, {}}}, PlacementStrategy::pack, {"/logs"});
  const auto make = [&](std::size_t bundles) {
    PlacementGroupOptions options;
    options.bundles.assign(bundles, {.cpus = 1});
    return registry.create_placement_group(options)->id;
  };
  std::vector<PlacementGroupId> all;
  for (int i = 0; i < 300; ++i) all.push_back(make(2));
  const PlacementGroupId removed = all[100], large = make(max_page + 44);
  ASSERT_TRUE(registry.remove_placement_group(removed).ok());
  std::erase(all, removed);
  all.push_back(large);
  all.push_back(make(1));
  std::vector<PlacementGroupId> told;
  std::vector<std::size_t> bundles_of_pages;
  AskGroups ask;
  for (bool is_last = false; !is_last;) {
    const GroupsReply page = registry.group_states(ask);
    ASSERT_FALSE(page.groups.empty());
    std::size_t bundles = 0;
    for (const auto& state : page.groups) {
      told.push_back(ask.after = state.group.id);
      bundles += state.group.bundles.size();
      EXPECT_EQ(state.free.size(), state.group.bundles.size());
    }
    bundles_of_pages.push_back(bundles);
    is_last = page.is_last;
  }
  EXPECT_EQ(told, all);
  EXPECT_EQ(bundles_of_pages, (std::vector<std::size_t>{256, 256, 86, max_page + 44, 1}));
  EXPECT_TRUE(registry.group_states({.after = all.back()}).groups.empty());
  EXPECT_TRUE(registry.group_states({.after = all.back()}).is_last);
}

TEST(RestartBudget, waits_longer_each_time_until_an_incarnation_lives_for_a_while) {
  using namespace std::chrono_literals;
  RestartBudget budget(6);
  const auto begin = RestartBudget::Clock::time_point(1h);
  budget.note_start(begin);
  EXPECT_EQ(budget.take(begin), 0ms);
  EXPECT_EQ(budget.take(begin), 100ms);
  EXPECT_EQ(budget.take(begin), 200ms);
  EXPECT_EQ(budget.take(begin), 400ms);
  budget.note_start(begin + 1s);
  EXPECT_EQ(budget.take(begin + 1s + RestartBudget::long_life), 0ms);
  EXPECT_EQ(budget.take(begin), 100ms);
  EXPECT_EQ(budget.take(begin), std::nullopt);
}

TEST(RestartBudget, counts_from_start_to_start) {
  using namespace std::chrono_literals;
  RestartBudget budget(-1);
  auto now = RestartBudget::Clock::time_point(1h);
  const auto live = [&](std::chrono::milliseconds time) {
    budget.note_start(now);
    now += time;
    const auto delay = budget.take(now);
    now += delay.value();
    return *delay;
  };
  EXPECT_EQ(live(0ms), 0ms);
  EXPECT_EQ(live(40ms), 60ms) << "100 ms from the start before";
  EXPECT_EQ(live(1s), 0ms) << "longer than 200 ms";
  EXPECT_EQ(live(0ms), 400ms) << "but the series goes on";
  for (int i = 0; i < 20; ++i) (void)live(0ms);
  EXPECT_EQ(live(1s), RestartBudget::longest_delay - 1s);
  EXPECT_EQ(live(12s), 0ms);
}

TEST(RestartBudget, waits_between_attempts_for_which_there_is_no_room) {
  using namespace std::chrono_literals;
  RestartBudget budget(-1);
  auto now = RestartBudget::Clock::time_point(1h);
  budget.note_start(now);
  now += 2min;
  for (const auto expected : {0ms, 100ms, 200ms, 400ms}) {
    const auto delay = budget.take(now);  // no start is noted
    EXPECT_EQ(delay, expected);
    now += delay.value();
  }
}

/// An actor with a device and a process of its own, which is started again whatever ends it.
ActorRegistry::Admission begin_restartable(ActorRegistry& registry) {
  const auto admitted =
      registry.admit({.resources = {.devices = 1}, .max_restarts = -1, .restarts_after_exit = true},
                     "A", {}, [](const auto&) {});
  EXPECT_TRUE(admitted.ok());
  registry.on_started({admitted->address.id, "endpoint", 7});
  return *admitted;
}

TEST(ActorRegistry, keeps_what_an_actor_that_ended_itself_held_until_its_process_is_gone) {
  ActorRegistry registry({{"node", 1, {0}}}, PlacementStrategy::pack, {});
  const auto first = begin_restartable(registry);
  const auto downs = registry.on_ended({first.address.id, true, "no luck"});
  ASSERT_EQ(downs.size(), 1U);
  EXPECT_TRUE(downs[0].restarts);
  EXPECT_EQ(registry.take_idle_processes().size(), 1U) << "it is told to end";
  EXPECT_TRUE(registry.take_restarts().empty()) << "its device may still be in use";
  const auto other = registry.admit({.resources = {.devices = 1}}, "A", {}, [](const auto&) {});
  EXPECT_FALSE(other.ok()) << "the device may still be in use";
  EXPECT_TRUE(registry.on_process_ended({.process = first.process, .pid = 7}).empty());
  ASSERT_EQ(registry.take_restarts().size(), 1U);
  const auto again = registry.admit_again(first.address.id, 1);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->admission.devices, std::vector<int>{0});
}

/// A process that was killed and does not end.
ProcessEnded stuck(ProcessId process) {
  return {.process = process, .pid = 7, .signalled = true, .code = 9, .survives = "state D"};
}

TEST(ActorRegistry, starts_an_actor_elsewhere_whose_process_does_not_end_and_keeps_its_device) {
  ActorRegistry registry({{"node", 1, {0, 1}}}, PlacementStrategy::pack, {});
  const auto first = begin_restartable(registry);
  ASSERT_EQ(first.devices, std::vector<int>{0});
  const auto downs = registry.on_process_ended(stuck(first.process));
  ASSERT_EQ(downs.size(), 1U);
  EXPECT_TRUE(downs[0].restarts);
  EXPECT_NE(downs[0].message.find("does not end (state D)"), std::string::npos) << downs[0].message;
  ASSERT_EQ(registry.take_restarts().size(), 1U);
  const auto again = registry.admit_again(first.address.id, 1);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->admission.devices, std::vector<int>{1});
  const SpawnOptions other{.resources = {.devices = 1}};
  EXPECT_FALSE(registry.admit(other, "A", {}, [](const auto&) {}).ok()) << "it is used still";
  EXPECT_TRUE(registry.on_process_ended({first.process, 7, true, false, 9}).empty());
  EXPECT_EQ(registry.admit(other, "A", {}, [](const auto&) {})->devices, std::vector<int>{0});
}

TEST(ActorRegistry, does_not_wait_for_the_process_of_an_actor_that_ended_itself_if_that_does_not) {
  ActorRegistry registry({{"node", 1, {0, 1}}}, PlacementStrategy::pack, {});
  const auto first = begin_restartable(registry);
  EXPECT_EQ(registry.on_ended({first.address.id, true, "no luck"}).size(), 1U);
  EXPECT_TRUE(registry.take_restarts().empty());
  const auto downs = registry.on_process_ended(stuck(first.process));
  ASSERT_EQ(downs.size(), 1U);
  EXPECT_EQ(downs[0].cause, DownCause::not_restarted);
  EXPECT_EQ(downs[0].incarnation, 1U) << "the end of the one before is known";
  EXPECT_TRUE(downs[0].restarts);
  const auto due = registry.take_restarts();
  ASSERT_EQ(due.size(), 1U);
  const auto again = registry.admit_again(due[0].actor, due[0].incarnation);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->admission.devices, std::vector<int>{1});
}

TEST(ActorRegistry, moves_a_bundle_whose_actor_does_not_end_with_all_that_are_in_it) {
  ActorRegistry registry({{"a", 1, {0, 1}}, {"b", 1, {0, 1}}}, PlacementStrategy::pack, {});
  const auto group = *registry.create_placement_group({.bundles = {{.devices = 2}}, .moves = true});
  const SpawnOptions options{
      .resources = {.devices = 1}, .bundle = group.bundle(0), .max_restarts = -1};
  std::vector<ActorRegistry::Admission> actors;
  for (int i = 0; i < 2; ++i) {
    actors.push_back(*registry.admit(options, "A", {}, [](const auto&) {}));
    (void)registry.on_started({actors.back().address.id, "endpoint", 7});
  }
  EXPECT_TRUE(registry.on_process_ended(stuck(actors[0].process)).at(0).restarts);
  EXPECT_TRUE(registry.placement_groups().at(0).bundles.at(0).is_lost);
  const auto doomed = registry.take_idle_processes();
  ASSERT_EQ(doomed.size(), 1U);
  EXPECT_EQ(doomed[0].process, actors[1].process);
  EXPECT_TRUE(doomed[0].is_doomed);
  EXPECT_FALSE(registry.place_again(group.id).ok()) << "one of its actors is still there";
  EXPECT_EQ(registry.on_process_ended({actors[1].process, 7, true, false, 9}).size(), 1U);
  EXPECT_EQ(registry.free_on(0).devices, 1) << "that of the other one";
  const auto placed = registry.place_again(group.id);
  ASSERT_TRUE(placed.ok()) << placed.error().message;
  EXPECT_EQ(placed->bundles.at(0).node, "b");
  for (const auto& actor : actors) {
    const auto again = registry.admit_again(actor.address.id, 1);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again->admission.node, 1U);
  }
  EXPECT_TRUE(registry.on_process_ended({actors[0].process, 7, true, false, 9}).empty());
  EXPECT_EQ(registry.free_on(0).devices, 2);
  EXPECT_EQ(registry.free_on(1).devices, 0);
}

TEST(ActorRegistry, starts_an_actor_that_ended_itself_elsewhere_if_its_node_is_lost_as_well) {
  ActorRegistry registry({{"a", 1, {0}}, {"b", 1, {0}}}, PlacementStrategy::pack, {});
  const auto first = begin_restartable(registry);
  EXPECT_EQ(registry.on_ended({first.address.id, true, "no luck"}).size(), 1U);
  EXPECT_TRUE(registry.on_node_lost(first.node, "is gone").empty()) << "its end is known";
  ASSERT_EQ(registry.take_restarts().size(), 1U);
  const auto again = registry.admit_again(first.address.id, 1);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_NE(again->admission.node, first.node);
}

TEST(ActorRegistry, tries_again_an_actor_whose_start_could_not_be_sent) {
  ActorRegistry registry({{"node", 1, {0}}}, PlacementStrategy::pack, {});
  const auto first = begin_restartable(registry);
  EXPECT_EQ(registry.on_process_ended({first.process, 7, true, false, 9}).size(), 1U);
  EXPECT_EQ(registry.take_restarts().size(), 1U);
  const auto again = registry.admit_again(first.address.id, 1);
  ASSERT_TRUE(again.ok());
  const auto unsent = registry.on_process_ended({.process = again->admission.process});
  ASSERT_EQ(unsent.size(), 1U);
  EXPECT_TRUE(unsent[0].restarts);
  EXPECT_EQ(registry.take_restarts().size(), 1U);
}

}  // namespace troupe
