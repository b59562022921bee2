#include <gtest/gtest.h>

#include "tests/process/runtime/object_links/object_cluster.hpp"
#include "tests/support/hosts/slow_link.hpp"

namespace troupe::test {
namespace {

constexpr std::uint64_t large = 10'000'019;  ///< floats: 40 MB, no whole number of pieces

/// While it lives, two hosts cannot reach each other; all others can reach both.
class CutBetween {
 public:
  CutBetween(int a, int b) : a_(a), b_(b) { route("add"); }
  ~CutBetween() { mend(); }
  CutBetween(const CutBetween&) = delete;
  CutBetween& operator=(const CutBetween&) = delete;
  void mend() {
    if (std::exchange(is_cut_, false)) route("del");
  }

 private:
  void route(const std::string& change) const {
    on_host(a_, fmt::format("ip route {} blackhole {}", change, host_address(b_)));
    on_host(b_, fmt::format("ip route {} blackhole {}", change, host_address(a_)));
  }
  const int a_, b_;
  bool is_cut_ = true;
};

class PullsOverCutLinks : public testing::TestWithParam<std::chrono::milliseconds> {
 protected:
  void SetUp() override {
    if (const auto missing = missing_slow_links(); !missing.empty()) GTEST_SKIP() << missing;
  }
};

TEST_P(PullsOverCutLinks, go_on_when_the_link_is_back_and_others_are_not_disturbed) {
  ObjectCluster cluster(3, ObjectCluster::Where::three_hosts);
  const auto maker = cluster.spawn(1), other = cluster.spawn(2), reader = cluster.spawn(3);
  const auto bystander = cluster.spawn(3);
  const auto ref = must(maker.call<&Reader::make_and_keep>(large, 1.0F).get(limit));
  const SlowLink slow(3, {.delay = 1ms, .bytes_per_second = 20e6});  // the pull takes 2 s
  auto sum = reader.call<&Reader::sum>(ref);
  ASSERT_TRUE(comes_true([&] { return slow.carried_bytes() > large; })) << "a quarter has come";
  CutBetween cut(1, 3);
  ASSERT_FALSE(sum.ready()) << "the pull is to be under way";

  // Meanwhile everything else works: the third node pulls the same object, and all can be called.
  EXPECT_EQ(must(other.call<&Reader::sum>(ref).get(limit)), large);
  Deadline over(GetParam());  // the length of the cut is what this test varies
  do {
    EXPECT_EQ(must(maker.call<&Reader::node>().get(limit)), "node1");
    EXPECT_EQ(must(other.call<&Reader::sum>(ref).get(limit)), large);
    EXPECT_EQ(must(bystander.call<&Reader::node>().get(limit)), "node3");
  } while (!over.is_over());
  EXPECT_FALSE(sum.ready()) << "nothing passes";

  cut.mend();
  const auto answer = sum.get(limit);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(*answer, large);
  EXPECT_EQ(ObjectCluster::held_by(reader), 1U) << "its copy";
}

INSTANTIATE_TEST_SUITE_P(Cut, PullsOverCutLinks, testing::Values(500ms, 5000ms),
                         [](const auto& info) {
                           return fmt::format("for_{}", info.param.count());
                         });

}  // namespace
}  // namespace troupe::test
