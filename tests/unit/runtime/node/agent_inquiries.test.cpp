#include "runtime/node/agent_inquiries.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Inquiries : testing::Test {
  std::vector<NodeReport> sent;
  AgentInquiries inquiries{[this](NodeReport report) { sent.push_back(std::move(report)); }};
};

TEST_F(Inquiries, are_answered_once_all_processes_have_answered_or_ended) {
  inquiries.begin({.request = 5, .what = Inquiry::metrics, .limit_ms = 60'000},
                  {{1, "a"}, {2, "b"}, {3, "c"}});
  inquiries.take({.request = 5, .process = 1});
  inquiries.take({.request = 5, .process = 1});  // it has answered already
  inquiries.take({.request = 6, .process = 2});  // nobody has asked
  inquiries.forget(3);
  EXPECT_TRUE(sent.empty());
  inquiries.take({.request = 5, .process = 2});
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].request, 5U);
  EXPECT_EQ(sent[0].processes.size(), 2U);
  EXPECT_TRUE(sent[0].silent.empty());
}

TEST_F(Inquiries, tell_of_those_that_are_late) {
  inquiries.begin({.request = 5, .limit_ms = 0}, {{1, "a"}, {2, "b"}});
  inquiries.take({.request = 5, .process = 2});
  inquiries.tick();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_THAT(sent[0].silent, ElementsAre("a"));
  inquiries.take({.request = 5, .process = 1});
  EXPECT_EQ(sent.size(), 1U);
}

TEST_F(Inquiries, without_processes_are_answered_at_once_and_last_words_are_passed_on) {
  inquiries.begin({.request = 5, .limit_ms = 1000}, {});
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_GT(sent[0].clock_ns, 0);
  inquiries.take({.request = 0, .process = 9});
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[1].processes[0].process, 9U);
}

TEST_F(Inquiries, leave_out_what_would_make_a_report_too_large_to_be_sent) {
  inquiries.begin({.request = 5, .limit_ms = 60'000}, {{1, "a"}, {2, "b"}});
  inquiries.take({.request = 5, .process = 1, .name = "a", .bytes = Bytes(1000)});
  inquiries.take(
      {.request = 5, .process = 2, .name = "b", .bytes = Bytes(AgentInquiries::max_bytes - 999)});
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].processes.size(), 1U);
  EXPECT_THAT(sent[0].silent, ElementsAre("b"));
}

TEST_F(Inquiries, beyond_a_number_at_once_are_refused) {
  for (std::size_t i = 1; i <= AgentInquiries::max_open; ++i) {
    inquiries.begin({.request = i, .limit_ms = 60'000}, {{1, "a"}});
  }
  EXPECT_TRUE(sent.empty());
  inquiries.begin({.request = 1000, .limit_ms = 60'000}, {{1, "a"}});
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_THAT(sent[0].problem, HasSubstr("too many"));
}

}  // namespace
}  // namespace troupe
