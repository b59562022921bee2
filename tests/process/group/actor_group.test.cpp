#include "parallel/group/actor_group.hpp"

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/group/adder.hpp"
#include "tests/support/time_scale.hpp"

namespace troupe::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr auto limit = 20s;

template <class T>
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().message);
  return *std::move(result);
}

/// A cluster with one agent for each node, all on this machine.
std::unique_ptr<Cluster> start_cluster(int nodes = 1) {
  ClusterOptions options;
  for (int i = 0; i < nodes; ++i) options.nodes.push_back({fmt::format("node{}", i), 8, {}});
  return must(Cluster::start(std::move(options)));
}

/// Four adders, spread over the nodes.
std::vector<ActorHandle<Adder>> spawn_adders(Cluster& cluster, const AdderOptions& options,
                                             int max_restarts = 0) {
  const auto nodes = cluster.nodes();
  std::vector<ActorHandle<Adder>> adders;
  for (std::size_t i = 0; i < 4; ++i) {
    adders.push_back(must(cluster
                              .spawn<Adder>({.name = fmt::format("adder-{}", i),
                                             .node = nodes[i % nodes.size()].spec.name,
                                             .max_restarts = max_restarts},
                                            options)
                              .get(limit)));
  }
  return adders;
}

ActorGroup group_of(const std::vector<ActorHandle<Adder>>& adders) {
  return {"adders", {adders.begin(), adders.end()}};
}

/// Adds up 1, 10, 100, ... over a communicator; returns what each adder gets.
std::vector<Result<float>> sums(const std::vector<ActorHandle<Adder>>& adders,
                                const std::string& of = whole_group) {
  std::vector<Future<float>> calls;
  float own = 1;
  for (const auto& adder : adders) {
    calls.push_back(adder.call<&Adder::sum>(of, own));
    own *= 10;
  }
  std::vector<Result<float>> answers;
  for (auto& call : calls) answers.push_back(call.get(limit));
  return answers;
}

void expect_sums(const std::vector<ActorHandle<Adder>>& adders) {
  for (const auto& sum : sums(adders)) EXPECT_EQ(must(sum), 1111.0F);
}

/// Kills one of four adders while the others wait for it, and forms their group again.
void lose_one_and_form_again(int nodes, const AdderOptions& options,
                             std::chrono::milliseconds target) {
  const auto cluster = start_cluster(nodes);
  const auto adders = spawn_adders(*cluster, options, -1);
  ActorGroup group = group_of(adders);
  ASSERT_TRUE(group.form().ok());
  expect_sums(adders);
  for (std::uint32_t round = 0; round < 3; ++round) {
    const std::size_t lost = 1 + round;
    for (std::size_t i = 0; i < 4; ++i) {
      must(adders[i].call<&Adder::held>().get(limit));
      adders[i].call<&Adder::hold>(static_cast<int>(100 * round + i));
    }
    const int pid = must(adders[lost].call<&Adder::pid>().get(limit));
    std::vector<Future<float>> waiting;
    for (std::size_t i = 0; i < 4; ++i) {
      if (i != lost) {
        waiting.push_back(adders[i].call<&Adder::sum>(std::string(whole_group), 1.0F));
      }
    }
    const auto since = std::chrono::steady_clock::now();
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    const Result<void> formed = group.form();
    const auto took = std::chrono::steady_clock::now() - since;
    ASSERT_TRUE(formed.ok()) << formed.error().message;
    EXPECT_LT(took, target * time_scale);
    for (auto& call : waiting) {
      const auto sum = call.get(limit);
      ASSERT_FALSE(sum.ok());
      EXPECT_TRUE(sum.error().code == ErrorCode::cancelled || is_actor_gone(sum.error().code))
          << sum.error().message;
    }
    expect_sums(adders);
    for (std::size_t i = 0; i < 4; ++i) {
      const int expected = i == lost ? 0 : static_cast<int>(100 * round + i);
      EXPECT_EQ(must(adders[i].call<&Adder::held>().get(limit)), expected) << i;
      EXPECT_EQ(must(adders[i].call<&Adder::epoch>().get(limit)), group.epoch());
    }
  }
}

TEST(ActorGroup, adds_up_over_its_members_on_one_node) {
  const auto cluster = start_cluster();
  const auto adders = spawn_adders(*cluster, {});
  ASSERT_TRUE(group_of(adders).form().ok());
  expect_sums(adders);
}

TEST(ActorGroup, adds_up_over_links_within_a_node) {
  const auto cluster = start_cluster();
  const auto adders = spawn_adders(*cluster, {.shares_memory = false});
  ASSERT_TRUE(group_of(adders).form().ok());
  expect_sums(adders);
}

TEST(ActorGroup, adds_up_over_nodes_with_several_members_each) {
  const auto cluster = start_cluster(2);
  const auto adders = spawn_adders(*cluster, {});
  ASSERT_TRUE(group_of(adders).form().ok());
  expect_sums(adders);
}

TEST(ActorGroup, forms_again_after_a_loss_in_shared_memory) {
  lose_one_and_form_again(1, {}, 300ms);
}

TEST(ActorGroup, forms_again_after_a_loss_over_links) {
  lose_one_and_form_again(1, {.shares_memory = false}, 1000ms);
}

TEST(ActorGroup, forms_again_after_a_loss_on_one_of_two_nodes) {
  lose_one_and_form_again(2, {.in_pairs = true}, 1000ms);
}

TEST(ActorGroup, has_the_communicators_that_its_members_name) {
  const auto cluster = start_cluster();
  const auto adders = spawn_adders(*cluster, {.in_pairs = true});
  ASSERT_TRUE(group_of(adders).form().ok());
  expect_sums(adders);
  const auto pairs = sums(adders, "pair");
  EXPECT_EQ(must(pairs[0]), 11.0F);
  EXPECT_EQ(must(pairs[1]), 11.0F);
  EXPECT_EQ(must(pairs[2]), 1100.0F);
  EXPECT_EQ(must(pairs[3]), 1100.0F);
}

TEST(ActorGroup, says_which_rank_lacks_a_communicator) {
  const auto cluster = start_cluster();
  const auto adders = spawn_adders(*cluster, {.in_pairs = true, .odd_rank = 2});
  const auto formed = group_of(adders).form();
  ASSERT_FALSE(formed.ok());
  EXPECT_EQ(formed.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(formed.error().message, HasSubstr("rank 2 has no communicator 'pair'"));
}

TEST(ActorGroup, names_a_member_that_is_gone_for_good_and_takes_another_in_its_place) {
  const auto cluster = start_cluster();
  auto adders = spawn_adders(*cluster, {});
  ActorGroup group = group_of(adders);
  ASSERT_TRUE(group.form().ok());
  ASSERT_TRUE(cluster->kill(adders[2]).ok());
  const auto formed = group.form();
  ASSERT_FALSE(formed.ok());
  EXPECT_EQ(formed.error().code, ErrorCode::actor_died);
  EXPECT_THAT(formed.error().message, HasSubstr("adder-2"));
  adders[2] = must(cluster->spawn<Adder>({.name = "successor"}, AdderOptions{}).get(limit));
  group.replace(2, adders[2]);
  const auto again = group.form();
  ASSERT_TRUE(again.ok()) << again.error().message;
  expect_sums(adders);
}

TEST(ActorGroup, ends_its_calls_when_a_member_is_lost_and_stays_so) {
  const auto cluster = start_cluster();
  const auto adders = spawn_adders(*cluster, {});
  ActorGroup group = group_of(adders);
  ASSERT_TRUE(group.form().ok());
  auto waiting = adders[0].call<&Adder::sum>(std::string(whole_group), 1.0F);
  // Rank 1 does not watch rank 3, and is told by the abort alone.
  auto far = adders[1].call<&Adder::sum>(std::string(whole_group), 1.0F);
  const auto since = std::chrono::steady_clock::now();
  ASSERT_TRUE(cluster->kill(adders[3]).ok());
  EXPECT_FALSE(waiting.get(limit).ok());
  EXPECT_FALSE(far.get(limit).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - since, 500ms * time_scale);
  EXPECT_EQ(adders[2].call<&Adder::sum>(std::string(whole_group), 1.0F).get(limit).error().code,
            ErrorCode::cancelled);
}

TEST(ActorGroup, forms_again_when_a_member_freezes_while_it_forms) {
  for (const bool shares_memory : {true, false}) {
    const auto cluster = start_cluster();
    const auto adders =
        spawn_adders(*cluster, {.shares_memory = shares_memory, .frozen_rank = 3}, -1);
    ActorGroup group = group_of(adders);
    const Result<void> formed = group.form(limit);  // the agent kills it after 1.8 s
    ASSERT_TRUE(formed.ok()) << formed.error().message;
    EXPECT_GT(group.epoch(), 1U);
    expect_sums(adders);
  }
}

TEST(ActorGroup, can_be_formed_by_actors_one_after_another) {
  const auto cluster = start_cluster();
  const auto adders = spawn_adders(*cluster, {});
  for (int i = 0; i < 3; ++i) {
    const auto owner = must(cluster->spawn<Owner>({}).get(limit));
    EXPECT_EQ(must(owner.call<&Owner::form>(adders).get(limit)), 4.0F);
    ASSERT_TRUE(cluster->stop(owner).ok());
  }
}

TEST(ActorGroup, may_have_one_member) {
  const auto cluster = start_cluster();
  const auto adder = must(cluster->spawn<Adder>({}, AdderOptions{}).get(limit));
  ASSERT_TRUE(group_of({adder}).form().ok());
  EXPECT_EQ(must(adder.call<&Adder::sum>(std::string(whole_group), 5.0F).get(limit)), 5.0F);
}

TEST(ActorGroup, has_no_collectives_before_it_forms) {
  const auto cluster = start_cluster();
  const auto adder = must(cluster->spawn<Adder>({}, AdderOptions{}).get(limit));
  EXPECT_EQ(adder.call<&Adder::sum>(std::string(whole_group), 5.0F).get(limit).error().code,
            ErrorCode::not_found);
}

}  // namespace
}  // namespace troupe::test
