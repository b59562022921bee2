#include "launcher/bench/faults/fault_report.hpp"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/terminal_text.hpp"

namespace troupe {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

FaultRecord fault(FaultKind kind, double noticed_ms, double step_seconds) {
  FaultRecord record{.kind = kind, .victim = "worker-1", .node = "node0"};
  record.noticed_ms = noticed_ms;
  record.next_step_seconds = step_seconds;
  record.sequences = 9;
  record.kv_tokens = 1234;
  record.in_flight_tokens = 9;
  record.unsaved_tokens = 3;
  return record;
}

FaultFigures figures() {
  FaultFigures of;
  of.planned = 3;
  of.requests = 8;
  of.compared = 24;
  of.answered_tokens = 1000;
  of.sampled_tokens = 1007;
  of.unsaved_tokens = 7;
  of.counts_agree = true;
  of.is_complete = true;
  of.faults = {fault(FaultKind::worker, 1, 0.5), fault(FaultKind::stop, 1800, 2.5),
               fault(FaultKind::worker, 3, 1.5)};
  of.memory_before = MemoryReading{.driver = 30 << 20, .agents = {{"node0", 7, 8 << 20}}};
  of.memory_after = MemoryReading{.driver = 31 << 20, .agents = {{"node0", 7, 8 << 20}}};
  return of;
}

void expect_fits(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(width_of(line), 79U) << line;
}

TEST(FaultReport, has_the_times_of_each_kind_and_says_that_all_bytes_are_the_same) {
  const std::string table = to_table(figures());
  expect_fits(table);
  EXPECT_THAT(table, HasSubstr("worker         2      2.0      2.9      3.0     1.00     1.45"));
  EXPECT_THAT(table, HasSubstr("30.0 MiB"));
  EXPECT_THAT(table, HasSubstr("1000 tokens of answers were sampled, 7 of them again\n"
                               "none of these had been handed over\n"));
  EXPECT_THAT(
      table, HasSubstr("stop                 1234     1234        9        9        3        3\n"));
  EXPECT_THAT(table, HasSubstr("all 24 answers of 3 rounds are the bytes of the undisturbed run"));
}

TEST(FaultReport, holds_the_times_against_what_they_are_to_be) {
  const std::string table = to_table(figures());
  EXPECT_THAT(table,
              HasSubstr("killed: noticed                50 ms (P95)      2.0      2.9      3.0"
                        "  met\n"));
  EXPECT_THAT(table, HasSubstr("stopped: noticed                   2000 ms   1800.0"));
  EXPECT_THAT(table,
              HasSubstr("killed worker: next step               2 s     1.00     1.45     1.50"
                        "  met\n"));
  EXPECT_THAT(table, Not(HasSubstr("link cut"))) << "there was none";
  FaultFigures slow = figures();
  slow.faults.push_back(fault(FaultKind::link, 2001, 5));
  const auto json = to_json(slow);
  ASSERT_EQ(json["targets"].size(), 5U);
  EXPECT_EQ(json["targets"][2]["what"], "link cut: noticed");
  EXPECT_FALSE(json["targets"][2]["is_met"]);
  EXPECT_TRUE(json["targets"][3]["is_met"]);
}

TEST(FaultReport, does_not_say_all_when_it_broke_off) {
  FaultFigures broken = figures();
  broken.is_complete = false;
  broken.memory_after.reset();
  EXPECT_THAT(to_table(broken), Not(HasSubstr("all 24")));
  broken.compared = 0;
  EXPECT_THAT(to_table(broken), HasSubstr("no answer was compared"));
}

TEST(FaultReport, names_the_differences) {
  FaultFigures of = figures();
  of.different = 3;
  of.differences = {{2, 5, "token 3 of 9 is another one"}};
  const std::string table = to_table(of);
  EXPECT_THAT(table, HasSubstr("3 of 24 answers are not the bytes of the undisturbed run"));
  EXPECT_THAT(table, HasSubstr("round 2, request 5: token 3 of 9 is another one\n"));
  EXPECT_THAT(table, HasSubstr("and 2 more"));
  EXPECT_EQ(to_json(of)["differences"][0]["request"], 5);
}

TEST(FaultReport, has_lines_of_faults_that_fit_and_align) {
  FaultRecord longest = fault(FaultKind::executor, 12345.7, 1234.56);
  longest.victim = "agent-a-host-with-a-long-name.of.a.cluster";
  longest.node = "a-host-with-a-long-name.of.a.cluster";
  longest.at_seconds = 86400;
  FaultRecord open{.kind = FaultKind::node, .victim = "agent-h1", .node = "h1"};
  const std::string heading = fault_heading();
  const std::string usual = fault_line(1, fault(FaultKind::worker, 1.25, 0.5));
  expect_fits(heading + "\n" + usual + "\n" + fault_line(99999, longest) + "\n" +
              fault_line(2, open));
  EXPECT_EQ(width_of(heading), width_of(usual)) << heading << "\n" << usual;
  EXPECT_THAT(fault_line(2, open), HasSubstr("- ms"));
}

TEST(FaultReport, tells_programs_of_every_fault) {
  const auto json = to_json(figures());
  ASSERT_EQ(json["faults"].size(), 3U);
  EXPECT_EQ(json["faults"][1]["kind"], "stop");
  EXPECT_EQ(json["kinds"]["worker"]["count"], 2);
  EXPECT_EQ(json["kinds"]["worker"]["noticed_ms"]["most"], 3);
  EXPECT_EQ(json["answers_compared"], 24);
}

TEST(FaultReport, finds_tokens_that_were_sampled_again_although_they_had_been_handed_over) {
  FaultFigures of = figures();
  EXPECT_FALSE(of.failed());
  of.sampled_tokens = 1009;
  EXPECT_TRUE(of.failed());
  EXPECT_THAT(to_table(of), HasSubstr("9 of them again\n2 of these had been handed over\n"));
  EXPECT_EQ(to_json(of)["saved_tokens_sampled_again"], 2);
  of.counts_agree = false;
  EXPECT_FALSE(of.failed()) << "the counts tell nothing";
  EXPECT_THAT(to_table(of),
              AllOf(HasSubstr("9 of them again\n"), Not(HasSubstr("had been handed over"))));
  EXPECT_TRUE(to_json(of)["saved_tokens_sampled_again"].is_null());
}

TEST(FaultReport, tells_of_step_domains_that_were_dropped_and_are_back) {
  FaultFigures of = figures();
  EXPECT_THAT(to_table(of), Not(HasSubstr("step domain")));
  DomainRecord dropped{.change = {}, .at_seconds = 65};
  dropped.change.domain = 1;
  dropped.change.requests = 5;
  dropped.change.serving = 1;
  dropped.change.all = 2;
  DomainRecord back = dropped;
  back.change.kind = EngineDomainChange::Kind::back;
  back.change.serving = 2;
  back.change.seconds = 4.25;
  of.domain_changes = {dropped, back};
  EXPECT_EQ(domain_line(dropped),
            "        0:01:05  step domain 1 is dropped; 1 of 2 serve, 5 requests move");
  EXPECT_EQ(domain_line(back), "        0:01:05  step domain 1 is back after 4.2 s; 2 of 2 serve");
  EXPECT_THAT(to_table(of), HasSubstr("1 step domain was dropped with 5 requests"));
  expect_fits(to_table(of));
  const auto json = to_json(of)["domain_changes"];
  EXPECT_EQ(json.at(0)["change"], "dropped");
  EXPECT_EQ(json.at(1)["away_seconds"], 4.25);
  of.domain_contradictions = {"step domain 1 is dropped twice"};
  EXPECT_TRUE(of.failed());
  EXPECT_THAT(to_table(of), HasSubstr("step domain 1 is dropped twice\n"));
}

}  // namespace
}  // namespace troupe
