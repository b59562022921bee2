#include "launcher/job/replacement_wait.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ReplacementWait::Clock::time_point start{};

Config config_for(const std::string& launch) {
  Config config;
  config.cluster.launch = launch;
  config.restart.wait_seconds = 300;
  return config;
}

TEST(ReplacementWait, says_what_is_awaited_how_long_and_what_can_be_done) {
  const Config config = config_for("join");
  ReplacementWait wait(config);
  wait.set_join_command("launcher agent --join a:7");
  EXPECT_EQ(wait.notice(start), "");
  EXPECT_THAT(wait.take({.lost = {"h2"}, .seconds = 1}, start),
              ElementsAre("waiting at most 5:00 (restart.wait_seconds) for a node in place of "
                          "'h2'; on a node that is to take its place run:\n  launcher agent "
                          "--join a:7"));
  EXPECT_EQ(wait.notice(start + 34s), "waiting 35 s of at most 5:00 for a node in place of 'h2'");
  EXPECT_THAT(wait.take({.lost = {"h2"}, .found = {"h3"}, .seconds = 41}, start + 40s),
              ElementsAre("the wait is over after 41 s: 'h3' takes the place of 'h2'"));
  EXPECT_EQ(wait.notice(start + 41s), "");
}

TEST(ReplacementWait, says_that_more_are_lost_meanwhile_and_that_all_have_the_whole_time) {
  const Config config = config_for("local");
  ReplacementWait wait(config);
  EXPECT_EQ(wait.take({.lost = {"h2"}, .seconds = 1}, start).size(), 1U);
  EXPECT_THAT(wait.take({.lost = {"h2", "h3"}, .seconds = 61}, start + 60s),
              ElementsAre("waiting at most 5:00 (restart.wait_seconds) for nodes in place of 'h2' "
                          "and 'h3'; its agent is started again every 2 s"));
  EXPECT_EQ(wait.notice(start + 70s),
            "waiting 10 s of at most 5:00 for nodes in place of 'h2' and 'h3'");
}

TEST(ReplacementWait, tells_of_those_that_are_refused_meanwhile) {
  const Config config = config_for("ssh");
  ReplacementWait wait(config);
  EXPECT_EQ(wait.take({.lost = {"h2"}, .seconds = 1}, start).size(), 1U);
  EXPECT_THAT(wait.take({.lost = {"h2"}, .refused = {"h2: there is no checkpoint"}}, start),
              ElementsAre("refused h2: there is no checkpoint; the wait goes on"));
  EXPECT_THAT(wait.take({.lost = {"h2"}}, start), IsEmpty());
}

TEST(ReplacementWait, says_which_step_domains_are_dropped_and_back) {
  const Config config = config_for("join");
  ReplacementWait wait(config);
  wait.set_join_command("launcher agent --join a:7");
  wait.take({.domain = 1, .lost = {"h2"}, .seconds = 1}, start);
  EXPECT_THAT(wait.take({.kind = EngineDomainChange::Kind::dropped,
                         .domain = 1,
                         .nodes = {"h2"},
                         .why = "no node took its place within 2 s",
                         .requests = 7,
                         .serving = 1,
                         .all = 2}),
              ElementsAre("step domain 1 on 'h2' is dropped: 1 of 2 step domains serve; its 7 "
                          "unanswered requests go to the others; no node took its place within 2 s",
                          "it comes back as soon as there is a node; on a node that is to take its "
                          "place run:\n  launcher agent --join a:7"));
  EXPECT_EQ(wait.notice(start), "1 of 2 step domains serve");
  EXPECT_THAT(
      wait.take({.domain = 1, .lost = {"h2"}, .refused = {"h3: no"}, .is_dropped = true}, start),
      ElementsAre("not taken: h3: no"));
  EXPECT_THAT(wait.take({.kind = EngineDomainChange::Kind::back,
                         .domain = 1,
                         .nodes = {"h3"},
                         .why = {},
                         .serving = 2,
                         .all = 2,
                         .seconds = 65}),
              ElementsAre("step domain 1 is back on 'h3' after 1:05: 2 of 2 step domains serve"));
  EXPECT_EQ(wait.notice(start), "");
}

TEST(ReplacementWait, says_how_nodes_come_for_step_domains_that_had_none_at_the_start) {
  Config config = config_for("ssh");
  config.name = "stories";
  const EngineDomainChange awaited{.kind = EngineDomainChange::Kind::awaited,
                                   .domain = 1,
                                   .nodes = {},
                                   .why = {},
                                   .serving = 1,
                                   .all = 3};
  const std::string text =
      "1 of 3 step domains serve; the others have no node yet, and come as soon as there are "
      "some; ";
  ReplacementWait wait(config);
  EXPECT_THAT(wait.take(awaited), ElementsAre(text + "`launcher join stories HOST...` takes hosts "
                                                     "in"));
  EXPECT_EQ(wait.notice(start), "1 of 3 step domains serve");
  EXPECT_THAT(wait.take({.kind = EngineDomainChange::Kind::back,
                         .domain = 2,
                         .nodes = {"h2"},
                         .why = {},
                         .serving = 2,
                         .all = 3,
                         .is_new = true,
                         .seconds = 65}),
              ElementsAre("step domain 2 serves on 'h2', 1:05 after the start: 2 of 3 step domains "
                          "serve"));
  EXPECT_THAT(wait.take({.kind = EngineDomainChange::Kind::answered,
                         .domain = 2,
                         .nodes = {"h2"},
                         .why = {},
                         .serving = 2,
                         .all = 3}),
              IsEmpty());
  config.cluster.launch = "slurm";
  EXPECT_THAT(wait.take(awaited),
              ElementsAre(text + "run `launcher join stories` in another allocation of Slurm"));
}

TEST(ReplacementWait, sums_up_the_waits_of_several_step_domains) {
  const Config config = config_for("slurm");
  ReplacementWait wait(config);
  wait.take({.domain = 0, .lost = {"n1"}, .seconds = 1}, start);
  wait.take({.domain = 1, .lost = {"n1", "n2", "n3", "n4", "n5"}, .seconds = 1}, start + 10s);
  EXPECT_EQ(wait.notice(start + 10s),
            "waiting 11 s of at most 5:00 for nodes in place of 'n1', 'n2', 'n3', 'n4' and 1 more");
  wait.take({.domain = 0, .lost = {"n1"}, .found = {"n6"}, .seconds = 5}, start);
  EXPECT_NE(wait.notice(start + 10s), "");
}

}  // namespace
}  // namespace troupe
