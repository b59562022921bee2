#include "parallel/collectives/replaceable_collectives.hpp"

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/collectives/forwarding_collectives.hpp"
#include "parallel/collectives/self_collectives.hpp"

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Memory that the collectives of each generation give, so that they differ.
std::array<std::int32_t, 4> memory;

/// Notes its calls, with the generation of the collectives that opened it.
class NotingExchange final : public DeviceExpertExchange {
 public:
  NotingExchange(const DeviceExpertExchangeLayout& layout, int generation,
                 std::vector<std::string>& calls)
      : DeviceExpertExchange(layout), generation_(generation), calls_(calls) {
    received_counts_ = Tensor(&memory.at(static_cast<std::size_t>(generation)), DType::i32, {1});
    takes_codes_ = layout.takes_codes && generation > 1;  // as if a rank had refused at first
  }
  ~NotingExchange() override { note("exchange destroyed"); }

  Result<void> dispatch(const Tensor&, const Tensor&, const Tensor&, const Tensor&) override {
    note("dispatch of " + std::to_string(expected_rows()));
    return {};
  }
  Result<void> combine(const Tensor&, const Tensor&) override {
    note("combine");
    return {};
  }

 private:
  void note(const std::string& call) {
    calls_.push_back(call + ", " + std::to_string(generation_));
  }

  int generation_;
  std::vector<std::string>& calls_;
};

class NotingOverlap final : public OverlappedAllReduce {
 public:
  NotingOverlap(int generation, std::vector<std::string>& calls)
      : generation_(generation), calls_(calls) {
    min_rows_ = 77;
    normed_ = Tensor(&memory.at(static_cast<std::size_t>(generation)), DType::f32, {1});
  }

  Result<void> begin(int, const Tensor&) override { return note("begin"); }
  Result<void> norm(int, const AllReduceRmsNorm&) override { return note("norm"); }
  Result<void> await(int) override { return note("await"); }

 private:
  Result<void> note(const std::string& call) {
    calls_.push_back(call + ", " + std::to_string(generation_));
    return {};
  }

  int generation_;
  std::vector<std::string>& calls_;
};

class OpeningCollectives final : public ForwardingCollectives {
 public:
  OpeningCollectives(int generation, bool can_open, std::vector<std::string>& calls)
      : ForwardingCollectives(std::make_unique<SelfCollectives>()),
        generation_(generation),
        can_open_(can_open),
        calls_(calls) {}

  Result<std::unique_ptr<OverlappedAllReduce>> open_overlapped_all_reduce(DType,
                                                                          std::int64_t max_rows,
                                                                          std::int64_t) override {
    calls_.push_back("open overlap of " + std::to_string(max_rows));
    std::unique_ptr<OverlappedAllReduce> opened;
    if (can_open_) opened = std::make_unique<NotingOverlap>(generation_, calls_);
    return opened;
  }
  Result<std::unique_ptr<DeviceExpertExchange>> open_expert_exchange(
      const DeviceExpertExchangeLayout& layout) override {
    calls_.push_back("open exchange of " + std::to_string(layout.width));
    std::unique_ptr<DeviceExpertExchange> opened;
    if (can_open_) opened = std::make_unique<NotingExchange>(layout, generation_, calls_);
    return opened;
  }

 private:
  int generation_;
  bool can_open_;
  std::vector<std::string>& calls_;
};

TEST(ReplaceableCollectives, keep_what_was_opened_when_they_are_replaced) {
  std::vector<std::string> calls;
  ReplaceableCollectives group(std::make_shared<OpeningCollectives>(1, true, calls));
  auto exchange = group.open_expert_exchange({.width = 5, .takes_codes = true});
  auto overlap = group.open_overlapped_all_reduce(DType::bf16, 9, 5);
  ASSERT_TRUE(exchange.ok() && overlap.ok());
  ASSERT_NE(*exchange, nullptr);
  ASSERT_NE(*overlap, nullptr);
  EXPECT_EQ((*exchange)->layout().width, 5);
  EXPECT_EQ((*overlap)->min_rows(), 77);
  (*overlap)->set_least_rows(78);
  EXPECT_EQ((*exchange)->received_counts().data(), &memory[1]);
  EXPECT_FALSE((*exchange)->takes_codes());
  EXPECT_EQ((*overlap)->normed().data(), &memory[1]);
  calls.clear();

  group.release();
  EXPECT_TRUE(group.aborted());
  group.abort();  // does nothing
  EXPECT_THAT(calls, ElementsAre("exchange destroyed, 1"));
  calls.clear();

  group.replace(std::make_shared<OpeningCollectives>(2, true, calls));
  EXPECT_FALSE(group.aborted());
  ASSERT_TRUE(group.reopen().ok());
  EXPECT_THAT(calls, ElementsAre("open exchange of 5", "open overlap of 9"));
  EXPECT_EQ((*exchange)->received_counts().data(), &memory[2]);
  EXPECT_TRUE((*exchange)->takes_codes());
  EXPECT_EQ((*overlap)->normed().data(), &memory[2]);
  EXPECT_EQ((*overlap)->min_rows(), 78);
  calls.clear();

  (*exchange)->expect(3);
  EXPECT_TRUE((*exchange)->dispatch({}, {}, {}, {}).ok());
  EXPECT_TRUE((*exchange)->combine({}, {}).ok());
  EXPECT_TRUE((*overlap)->begin(0, {}).ok());
  EXPECT_TRUE((*overlap)->norm(0, {}).ok());
  EXPECT_TRUE((*overlap)->await(0).ok());
  EXPECT_THAT(calls,
              ElementsAre("dispatch of 3, 2", "combine, 2", "begin, 2", "norm, 2", "await, 2"));
}

TEST(ReplaceableCollectives, open_again_what_was_not_there_at_first) {
  std::vector<std::string> calls;
  ReplaceableCollectives group(std::make_shared<OpeningCollectives>(1, false, calls));
  auto exchange = group.open_expert_exchange({.width = 5});
  ASSERT_TRUE(exchange.ok());
  EXPECT_EQ(*exchange, nullptr);

  group.release();
  group.replace(std::make_shared<OpeningCollectives>(2, false, calls));
  calls.clear();
  EXPECT_TRUE(group.reopen().ok());
  EXPECT_THAT(calls, ElementsAre("open exchange of 5")) << "ranks that load open it";

  group.release();
  group.replace(std::make_shared<OpeningCollectives>(3, true, calls));
  const Result<void> reopened = group.reopen();
  ASSERT_FALSE(reopened.ok());
  EXPECT_EQ(reopened.error().code, ErrorCode::unsupported);
  EXPECT_THAT(reopened.error().message, HasSubstr("each other's memory"));
}

TEST(ReplaceableCollectives, keep_the_timeout) {
  ReplaceableCollectives group(std::make_shared<SelfCollectives>());
  group.set_timeout(std::chrono::milliseconds(7));
  const auto other = std::make_shared<SelfCollectives>();
  group.replace(other);
  EXPECT_EQ(other->timeout(), std::chrono::milliseconds(7));
}

}  // namespace
}  // namespace troupe
