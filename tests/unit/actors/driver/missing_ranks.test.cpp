#include "actors/driver/missing_ranks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A rank of the tensor ranks 0 and 1 that has begun so many calls.
RankState tensor_rank(int rank, std::uint64_t calls, bool is_inside) {
  CollectiveState group{.group = "tensor", .ranks = {0, 1}, .calls = calls};
  group.sends = group.receives = {0, 0};
  group.is_inside = is_inside;
  group.op = "all_reduce";
  group.bytes = 4096;
  group.since_us = 10'200'000;
  return {.rank = rank, .step = 7, .is_in_step = true, .groups = {group}};
}

/// A rank of the stages 0, 1 and 2, which pass messages on.
RankState stage(int rank, std::vector<std::uint64_t> sends, std::vector<std::uint64_t> receives) {
  CollectiveState group{.group = "pipeline", .ranks = {0, 1, 2}};
  group.sends = std::move(sends);
  group.receives = std::move(receives);
  return {.rank = rank, .step = 7, .is_in_step = true, .groups = {group}};
}

RankState receiving(RankState of, int from) {
  of.groups[0].is_inside = true;
  of.groups[0].op = "receive";
  of.groups[0].peer = from;
  return of;
}

TEST(MissingRanks, are_those_that_did_not_come_to_the_call_of_the_others) {
  const std::vector<RankState> states{tensor_rank(0, 12, true), tensor_rank(1, 11, false)};
  EXPECT_THAT(find_missing_ranks(states, 7), ElementsAre(1));
  EXPECT_EQ(describe_missing(states, 1, 7),
            "rank 1 did not come to call 12 of the tensor ranks (all_reduce of 4096 bytes), for "
            "which rank 0 has waited 10.2 s");
}

TEST(MissingRanks, may_be_inside_a_call_that_the_others_have_left) {
  EXPECT_THAT(
      find_missing_ranks(std::vector{tensor_rank(0, 12, true), tensor_rank(1, 11, true)}, 7),
      ElementsAre(1));
}

TEST(MissingRanks, are_not_those_that_wait_for_another_one_themselves) {
  const std::vector<RankState> states{
      stage(0, {0, 4, 0}, {0, 0, 0}),
      receiving(stage(1, {0, 0, 4}, {5, 0, 0}), 0),
      receiving(stage(2, {0, 0, 0}, {0, 5, 0}), 1),
  };
  EXPECT_THAT(find_missing_ranks(states, 7), ElementsAre(0));
  EXPECT_THAT(describe_missing(states, 0, 7), HasSubstr("(receive of 0 bytes from rank 0)"));
}

TEST(MissingRanks, without_calls_are_those_with_a_step_to_finish) {
  RankState busy{.rank = 3, .step = 9, .is_in_step = true};
  const RankState idle{.rank = 4, .step = 9};
  EXPECT_THAT(find_missing_ranks(std::vector{busy, idle}, 9), ElementsAre(3));
  EXPECT_EQ(describe_missing(std::vector{busy, idle}, 3, 9), "rank 3 did not finish step 9");
  busy.is_in_step = false;
  EXPECT_THAT(find_missing_ranks(std::vector{busy, idle}, 9), IsEmpty()) << "an answer is lost";
  EXPECT_THAT(find_missing_ranks(std::vector{busy, idle}, 10), ElementsAre(3, 4));
  EXPECT_EQ(describe_missing(std::vector{busy, idle}, 3, 10), "rank 3 did not begin step 10");
}

TEST(MissingRanks, have_not_begun_a_step_only_if_none_is_in_it) {
  RankState first = stage(0, {0, 4, 0}, {0, 0, 0}), second = stage(1, {0, 0, 4}, {4, 0, 0});
  second.step = 6;
  second.is_in_step = false;
  EXPECT_THAT(find_missing_ranks(std::vector{first, second}, 7), ElementsAre(0));
  first.is_in_step = false;
  EXPECT_THAT(find_missing_ranks(std::vector{first, second}, 7), ElementsAre(1));
  first.step = 8;
  first.is_in_step = true;
  EXPECT_THAT(find_missing_ranks(std::vector{first, second}, 7), ElementsAre(0, 1));
}

TEST(MissingRanks, have_done_something_if_a_call_or_a_step_has_begun_or_ended) {
  const RankState before = tensor_rank(1, 11, false);
  RankState after = before;
  after.groups[0].since_us += 3'000'000;
  EXPECT_TRUE(is_unchanged(before, after)) << "time alone has passed";
  after.groups[0].is_inside = true;
  EXPECT_FALSE(is_unchanged(before, after));
  after = before;
  after.step = 8;
  EXPECT_FALSE(is_unchanged(before, after));
}

TEST(MissingRanks, are_described_with_what_each_rank_is_at) {
  EXPECT_THAT(
      describe(std::vector{tensor_rank(0, 12, true), RankState{.rank = 1, .step = 6}}),
      ElementsAre("rank 0: step 7; tensor ranks: all_reduce of 4096 bytes number 12, waiting for "
                  "10.2 s",
                  "rank 1: step 6, which is done; no calls to other ranks"));
}

}  // namespace
}  // namespace troupe
