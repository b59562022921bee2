#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/node/ssh_node_starter.hpp"
#include "tests/process/runtime/object/object_actors.hpp"
#include "tests/support/hosts/test_hosts.hpp"

namespace troupe::test {
namespace {

constexpr std::size_t large = 10'000'019;  ///< floats: 40 MB, no whole number of pieces

class ObjectsOfHosts : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto missing = missing_hosts(); !missing.empty()) GTEST_SKIP() << missing;
    ClusterOptions options;
    SshNodeStarter::Options ssh;
    for (int i = 1; i <= 2; ++i) {
      options.nodes.push_back({fmt::format("node{}", i), 4, {}});
      ssh.host_of_node[options.nodes.back().name] = {host_name(i)};
    }
    options.starter = std::make_shared<SshNodeStarter>(std::move(ssh));
    options.address = own_address;
    options.start_timeout = 60s;
    cluster_ = start_cluster(std::move(options));
  }
  ActorHandle<Reader> spawn(const std::string& node) {
    return must(cluster_->spawn<Reader>({.node = node}).get(limit));
  }
  std::uint64_t pulls_of(const ActorHandle<Reader>& reader) {
    return must(reader.call<&Reader::counts>().get(limit))[3];
  }
  std::unique_ptr<Cluster> cluster_;
};

TEST_F(ObjectsOfHosts, are_pulled_once_for_all_readers_of_a_host) {
  const auto first = spawn("node1"), second = spawn("node1"), other = spawn("node2");
  const auto ref = must(cluster_->put(Floats(large, 1.0F)));
  auto a = first.call<&Reader::sum>(ref);
  auto b = second.call<&Reader::sum>(ref);
  auto c = other.call<&Reader::sum>(ref);
  EXPECT_EQ(must(a.get(limit)), large);
  EXPECT_EQ(must(b.get(limit)), large);
  EXPECT_EQ(must(c.get(limit)), large);
  EXPECT_EQ(pulls_of(first) + pulls_of(second), 1);
  EXPECT_EQ(pulls_of(other), 1);
}

TEST_F(ObjectsOfHosts, and_their_copies_are_freed_with_the_last_reference) {
  const auto maker = spawn("node1"), reader = spawn("node2");
  auto ref = must(maker.call<&Reader::make>(large, 2.0F).get(limit));
  EXPECT_EQ(must(reader.call<&Reader::sum>(ref).get(limit)), 2.0 * large);
  EXPECT_EQ(must(cluster_->get(ref, limit)).get()[large - 1], 2.0F);
  EXPECT_EQ(cluster_->objects().counts().held, 1);
  EXPECT_EQ(must(reader.call<&Reader::counts>().get(limit))[1], 1);
  ref = {};
  EXPECT_TRUE(comes_true([&] { return cluster_->objects().counts().held == 0; }));
  EXPECT_TRUE(comes_true([&] { return must(reader.call<&Reader::counts>().get(limit))[1] == 0; }));
  EXPECT_TRUE(comes_true([&] { return must(maker.call<&Reader::counts>().get(limit))[0] == 0; }));
}

TEST_F(ObjectsOfHosts, are_pulled_again_when_the_holder_of_a_copy_dies) {
  const auto first = spawn("node1"), second = spawn("node1");
  const auto ref = must(cluster_->put(Floats(large, 1.0F)));
  EXPECT_EQ(must(first.call<&Reader::sum>(ref).get(limit)), large);
  ASSERT_TRUE(cluster_->kill(first).ok());
  EXPECT_EQ(must(second.call<&Reader::sum>(ref).get(limit)), large);
  EXPECT_EQ(pulls_of(second), 1);
}

TEST_F(ObjectsOfHosts, are_lost_with_their_owner_and_readers_keep_their_views) {
  const auto maker = spawn("node1"), reader = spawn("node2");
  const auto ref = must(maker.call<&Reader::make_and_keep>(large, 1.0F).get(limit));
  must(reader.call<&Reader::keep>(ref).get(limit));
  EXPECT_EQ(must(reader.call<&Reader::view_kept>().get(limit)), large);
  ASSERT_TRUE(cluster_->kill(maker).ok());
  EXPECT_TRUE(comes_true([&] {
    const auto got = cluster_->get(ref, limit);
    return !got.ok() && got.error().code == ErrorCode::object_lost;
  }));
  EXPECT_EQ(must(reader.call<&Reader::sum_of_view>().get(limit)), large);
}

TEST_F(ObjectsOfHosts, are_lost_soon_when_the_host_of_their_owner_is_gone) {
  const auto maker = spawn("node1"), reader = spawn("node2");
  const auto ref = must(maker.call<&Reader::make_and_keep>(large, 1.0F).get(limit));
  must(reader.call<&Reader::keep>(ref).get(limit));
  auto own = must(cluster_->put(Floats(large, 2.0F)));
  must(maker.call<&Reader::keep>(own).get(limit));
  set_link(1, false);
  // What is under way keeps TCP from looking for the host.
  const auto begun = std::chrono::steady_clock::now();
  auto other = reader.call<&Reader::sum_of_kept>();
  const auto got = cluster_->get(ref, limit);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, ErrorCode::object_lost) << got.error().message;
  const auto theirs = other.get(limit);
  ASSERT_FALSE(theirs.ok());
  EXPECT_EQ(theirs.error().code, ErrorCode::object_lost) << theirs.error().message;
  own = {};  // and nobody borrows it any more
  EXPECT_TRUE(comes_true([&] { return cluster_->objects().counts().owned == 0; }, limit));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 20s);
  set_link(1, true);
}

}  // namespace
}  // namespace troupe::test
