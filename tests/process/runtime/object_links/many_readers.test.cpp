#include <gtest/gtest.h>

#include "tests/process/runtime/object_links/object_cluster.hpp"

namespace troupe::test {
namespace {

constexpr std::uint64_t large = 2'500'003;  ///< floats: 10 MB, no whole number of pieces
constexpr int nodes = 8;

class EightReaders : public testing::TestWithParam<ObjectCluster::Where> {
 protected:
  void SetUp() override {
    if (GetParam() == ObjectCluster::Where::this_machine) return;
    if (const auto missing = missing_hosts(); !missing.empty()) GTEST_SKIP() << missing;
  }
};

TEST_P(EightReaders, on_eight_nodes_read_one_object_at_once_and_free_it) {
  ObjectCluster cluster(nodes, GetParam());
  std::vector<ActorHandle<Reader>> readers;
  for (int node = 1; node <= nodes; ++node) readers.push_back(cluster.spawn(node));
  const auto maker = cluster.spawn(1);
  auto ref = must(maker.call<&Reader::make>(large, 2.0F).get(limit));
  for (const auto& reader : readers) must(reader.call<&Reader::keep>(ref).get(limit));
  for (int round = 0; round < 2; ++round) {
    std::vector<Future<double>> sums;
    for (const auto& reader : readers) sums.push_back(reader.call<&Reader::sum_of_kept>());
    for (auto& sum : sums) EXPECT_EQ(must(sum.get(limit)), 2.0 * large);
  }
  std::uint64_t pulls = 0;
  for (const auto& reader : readers) pulls += ObjectCluster::pulls_of(reader);
  if (GetParam() == ObjectCluster::Where::this_machine) {
    EXPECT_EQ(pulls, 0U) << "all map the maker's memory";
  } else {
    EXPECT_EQ(pulls, nodes - 1U) << "one for each other node";
  }
  ref = {};
  for (const auto& reader : readers) must(reader.call<&Reader::forget>().get(limit));
  EXPECT_TRUE(comes_true([&] { return ObjectCluster::owned_by(maker) == 0; }));
  for (const auto& reader : readers) {
    EXPECT_TRUE(comes_true([&] { return ObjectCluster::held_by(reader) == 0; }));
  }
}

TEST_P(EightReaders, keep_their_views_of_an_object_while_half_of_them_are_killed) {
  ObjectCluster cluster(nodes, GetParam());
  std::vector<ActorHandle<Reader>> readers;
  for (int node = 1; node <= nodes; ++node) readers.push_back(cluster.spawn(node));
  const auto ref = must(cluster->put(Floats(large, 1.0F)));
  std::vector<Future<double>> sums;
  for (const auto& reader : readers) {
    must(reader.call<&Reader::keep>(ref).get(limit));
    sums.push_back(reader.call<&Reader::view_kept>());
  }
  for (std::size_t i = 0; i < readers.size(); i += 2) {
    EXPECT_TRUE(cluster->kill(readers[i]).ok());
  }
  for (std::size_t i = 1; i < readers.size(); i += 2) {
    EXPECT_EQ(must(sums[i].get(limit)), large);
    EXPECT_EQ(must(readers[i].call<&Reader::sum_of_view>().get(limit)), large);
    must(readers[i].call<&Reader::forget>().get(limit));
  }
  const auto late = cluster.spawn(1);
  EXPECT_EQ(must(late.call<&Reader::sum>(ref).get(limit)), large);
}

INSTANTIATE_TEST_SUITE_P(Of, EightReaders,
                         testing::Values(ObjectCluster::Where::this_machine,
                                         ObjectCluster::Where::three_hosts),
                         [](const auto& info) {
                           return info.param == ObjectCluster::Where::this_machine ? "this_machine"
                                                                                   : "three_hosts";
                         });

}  // namespace
}  // namespace troupe::test
