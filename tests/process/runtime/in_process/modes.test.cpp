#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/runtime/in_process/mode_actors.hpp"
#include "tests/support/blocked_callback.hpp"

// The same scenarios between processes and within one.

namespace troupe::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Modes : public ::testing::TestWithParam<bool> {
 protected:
  static std::unique_ptr<Cluster> start(ClusterOptions options = {}) {
    if (options.nodes.empty()) options.nodes = {{"node0", 4, {}}};
    options.in_process = GetParam();
    return must(Cluster::start(std::move(options)));
  }
  static ActorHandle<Member> spawn(Cluster& cluster, const SpawnOptions& options, int start = 0) {
    return must(cluster.spawn<Member>(options, start).get(limit));
  }
};
INSTANTIATE_TEST_SUITE_P(Runtime, Modes, ::testing::Values(false, true),
                         [](const auto& mode) { return mode.param ? "in_process" : "processes"; });

std::size_t children() {
  std::size_t count = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream list(thread.path() / "children");
    for (int pid = 0; list >> pid;) ++count;
  }
  return count;
}

std::size_t sockets() {
  std::size_t count = 0;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(file.path(), error);
    if (target.string().starts_with("socket:")) ++count;
  }
  return count;
}

TEST(InProcess, has_neither_children_nor_sockets) {
  const std::size_t before = sockets();
  const auto cluster = must(Cluster::start({.in_process = true}));
  const auto member = must(cluster->spawn<Member>({.name = "a"}, 1).get(limit));
  EXPECT_EQ(must(member.call<&Member::pid>().get(limit)), ::getpid());
  EXPECT_EQ(children(), 0U);
  EXPECT_EQ(sockets(), before);
}

TEST(InProcess, shuts_down_without_callbacks_that_block) {
  const auto watching = std::make_shared<BlockedCallback>();
  const auto called = std::make_shared<BlockedCallback>();
  WatchToken token;
  ClusterOptions options;
  options.in_process = true;
  options.calls.callback_grace = 50ms;
  testing::internal::CaptureStderr();
  {
    const auto cluster = must(Cluster::start(std::move(options)));
    const auto member = must(cluster->spawn<Member>({.name = "watched"}, 1).get(limit));
    token = cluster->watch(member, [watching](const ActorDown&) { watching->block(); });
    member.call<&Member::pid>().then([called](const Result<int>&) { called->block(); });
    ASSERT_TRUE(called->has_begun());
    (void)cluster->stop(member, 1ms);  // hears of the end by a watch, too
    ASSERT_TRUE(watching->has_begun());
  }
  EXPECT_FALSE(watching->has_ended());
  EXPECT_FALSE(called->has_ended());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("watch of actor 'watched'"), HasSubstr("of a future does not return"),
                    HasSubstr("left behind")));
  called->go_on();
  watching->go_on();
  EXPECT_TRUE(called->ends());
  EXPECT_TRUE(watching->ends());
}

TEST(InProcess, takes_no_starter) {
  ClusterOptions options;
  options.in_process = true;
  options.address = "127.0.0.1";
  const auto refused = Cluster::start(std::move(options));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
}

TEST_P(Modes, answers_errors_and_exceptions_come_back) {
  const auto cluster = start();
  const auto member = spawn(*cluster, {}, 40);
  EXPECT_EQ(must(member.call<&Member::add>(2).get(limit)), 42);
  const auto refused = member.call<&Member::refuse>().get(limit);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  const auto thrown = member.call<&Member::throw_something>().get(limit);
  ASSERT_FALSE(thrown.ok());
  EXPECT_THAT(thrown.error().message, HasSubstr("thrown on purpose"));
  const auto unmade = cluster->spawn<Member>({}, -1).get(limit);
  ASSERT_FALSE(unmade.ok());
  EXPECT_EQ(unmade.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(unmade.error().message, HasSubstr("begins below zero"));
}

TEST_P(Modes, arguments_are_copies_and_calls_arrive_in_order) {
  const auto cluster = start();
  const auto member = spawn(*cluster, {});
  const std::vector<int> mine{1, 2};
  EXPECT_EQ(must(member.call<&Member::append>(mine, 3).get(limit)), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(mine, (std::vector<int>{1, 2}));
  for (int i = 0; i < 500; ++i) member.call<&Member::record>(i);
  const auto recorded = must(member.call<&Member::recorded>().get(limit));
  ASSERT_EQ(recorded.size(), 500U);
  for (int i = 0; i < 500; ++i) EXPECT_EQ(recorded[static_cast<std::size_t>(i)], i);
}

TEST_P(Modes, names_and_handles_lead_to_actors) {
  const auto cluster = start();
  const auto named = spawn(*cluster, {.name = "sum"});
  const auto other = spawn(*cluster, {});
  EXPECT_EQ(must(other.call<&Member::add_by_name>("sum", 5).get(limit)), 5);
  EXPECT_EQ(must(other.call<&Member::add_to>(named, 1).get(limit)), 6);
  EXPECT_EQ(cluster->spawn<Member>({.name = "sum"}, 0).get(limit).error().code,
            ErrorCode::already_exists);
  EXPECT_EQ(must(cluster->find<Member>("sum")), named);
}

TEST_P(Modes, actors_are_placed_and_their_resources_are_free_again) {
  ClusterOptions options;
  options.nodes = {{"left", 1, {}}, {"right", 1, {4, 7}}};
  const auto cluster = start(std::move(options));
  const auto a = spawn(*cluster, {.resources = {.cpus = 1, .devices = 1}});
  EXPECT_EQ(must(a.call<&Member::node>().get(limit)), "right");
  EXPECT_EQ(must(a.call<&Member::devices>().get(limit)), std::vector<int>{4});
  const auto refused = cluster->spawn<Member>({.resources = {.devices = 2}}, 0).get(limit);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted);
  ASSERT_TRUE(cluster->stop(a).ok());
  const auto b = spawn(*cluster, {.resources = {.devices = 2}});
  EXPECT_EQ(must(b.call<&Member::devices>().get(limit)), (std::vector<int>{4, 7}));
}

TEST_P(Modes, memory_is_shared_by_the_actors_of_a_node_alone) {
  ClusterOptions options;
  options.nodes = {{"left", 2, {}}, {"right", 2, {}}};
  const auto cluster = start(std::move(options));
  const auto a = spawn(*cluster, {.node = "left"}), b = spawn(*cluster, {.node = "left"});
  const auto c = spawn(*cluster, {.node = "right"});
  EXPECT_EQ(must(a.call<&Member::share>("ring", 7).get(limit)), 0);
  EXPECT_EQ(must(b.call<&Member::share>("ring", 8).get(limit)), 7);
  EXPECT_EQ(must(c.call<&Member::share>("ring", 9).get(limit)), 0);
}

TEST_P(Modes, watchers_hear_how_actors_end) {
  const auto cluster = start();
  const auto end_of = [&](const ActorHandle<Member>& member, const std::function<void()>& end) {
    const Promise<std::string> told;
    const auto token =
        cluster->watch(member, [told](const ActorDown& down) { told.complete(down.message); });
    end();
    return must(told.future().get(limit));
  };
  const auto leaver = spawn(*cluster, {}), stopped = spawn(*cluster, {}),
             killed = spawn(*cluster, {});
  EXPECT_THAT(end_of(leaver, [&] { leaver.call<&Member::leave>("has seen enough"); }),
              HasSubstr("has seen enough"));
  EXPECT_THAT(end_of(stopped, [&] { EXPECT_TRUE(cluster->stop(stopped).ok()); }),
              HasSubstr("was stopped"));
  EXPECT_THAT(end_of(killed, [&] { EXPECT_TRUE(cluster->kill(killed).ok()); }),
              HasSubstr("SIGKILL"));
  EXPECT_FALSE(killed.call<&Member::add>(1).get(limit).ok());
}

TEST_P(Modes, a_killed_actor_is_started_again_and_its_handles_find_it) {
  const auto cluster = start();
  const auto member = spawn(*cluster, {.name = "phoenix", .max_restarts = 2}, 10);
  EXPECT_EQ(must(member.call<&Member::add>(5).get(limit)), 15);
  const Promise<void> down;
  const auto token = cluster->watch(member, [down](const ActorDown&) { down.complete({}); });
  ASSERT_TRUE(cluster->kill(member).ok());
  ASSERT_TRUE(down.future().get(limit).ok());
  EXPECT_EQ(must(member.call<&Member::add>(1).get(limit)), 11) << "made of the same arguments";
  EXPECT_EQ(must(must(cluster->find<Member>("phoenix")).call<&Member::add>(1).get(limit)), 12);
}

TEST_P(Modes, an_actor_that_exits_is_started_again_if_it_may_be) {
  const auto cluster = start();
  const auto member = spawn(*cluster, {.max_restarts = 1, .restarts_after_exit = true}, 3);
  const Promise<void> down;
  const auto token = cluster->watch(member, [down](const ActorDown&) { down.complete({}); });
  member.call<&Member::leave>("again");
  ASSERT_TRUE(down.future().get(limit).ok());
  EXPECT_EQ(must(member.call<&Member::add>(1).get(limit)), 4);
}

TEST_P(Modes, owned_actors_end_with_their_owner) {
  const auto cluster = start();
  const auto owner = must(cluster->spawn<Owner>({}).get(limit));
  const auto owned = must(owner.call<&Owner::spawn_member>("owned").get(limit));
  EXPECT_EQ(must(owned.call<&Member::add>(1).get(limit)), 2);
  const Promise<void> down;
  const auto token = cluster->watch(owned, [down](const ActorDown&) { down.complete({}); });
  ASSERT_TRUE(cluster->kill(owner).ok());
  EXPECT_TRUE(down.future().get(limit).ok());
}

TEST_P(Modes, removing_a_placement_group_ends_its_actors) {
  const auto cluster = start();
  const auto group = must(cluster->create_placement_group({"g", {{.cpus = 3}}}));
  const auto member = spawn(*cluster, {.resources = {.cpus = 3}, .bundle = group.bundle(0)});
  EXPECT_FALSE(cluster->spawn<Member>({.resources = {.cpus = 2}}, 0).get(limit).ok());
  const Promise<void> down;
  const auto token = cluster->watch(member, [down](const ActorDown&) { down.complete({}); });
  ASSERT_TRUE(cluster->remove_placement_group(group.id).ok());
  ASSERT_TRUE(down.future().get(limit).ok());
  EXPECT_TRUE(cluster->spawn<Member>({.resources = {.cpus = 4}}, 0).get(limit).ok());
}

TEST_P(Modes, shutdown_leaves_a_method_behind_that_does_not_end) {
  auto cluster = start();
  const auto member = spawn(*cluster, {});
  auto slow = member.call<&Member::sleep_for_ms>(3000);
  const auto begin = std::chrono::steady_clock::now();
  cluster->shutdown(200ms);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 3s);
  cluster.reset();
  if (GetParam()) (void)slow.get(limit);  // its thread ends before the program does
}

}  // namespace
}  // namespace troupe::test
