#include "runtime/actor/node_inquiries.hpp"

#include <future>

#include <gtest/gtest.h>

namespace troupe {
namespace {

using namespace std::chrono_literals;

NodeReport report_of(const AskProcesses& ask) {
  return {
      .request = ask.request,
      .clock_ns = std::chrono::steady_clock::now().time_since_epoch() / 1ns + 3'600'000'000'000};
}

TEST(NodeInquiries, tell_what_a_nodes_clock_is_ahead_and_how_exactly_that_is_known) {
  NodeInquiries* answered = nullptr;
  NodeInquiries inquiries([&](std::size_t node, const AskProcesses& ask) -> Result<void> {
    answered->take(node, report_of(ask));
    return {};
  });
  answered = &inquiries;
  const auto answers = inquiries.ask({4}, Inquiry::clock, 0, 20s);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].node, 4U);
  EXPECT_LE(std::abs(answers[0].ahead_ns - 3'600'000'000'000), answers[0].off_ns + 1);
}

TEST(NodeInquiries, do_not_wait_for_nodes_that_are_lost_or_cannot_be_asked) {
  std::promise<AskProcesses> asked;
  NodeInquiries inquiries([&](std::size_t node, const AskProcesses& ask) -> Result<void> {
    if (node == 2) return fail(ErrorCode::peer_died, "gone");
    if (node == 0) asked.set_value(ask);
    return {};
  });
  auto answers = std::async(std::launch::async,
                            [&] { return inquiries.ask({2, 1, 0}, Inquiry::metrics, 0, 3600s); });
  const AskProcesses ask = asked.get_future().get();
  EXPECT_TRUE(inquiries.take(7, report_of(ask))) << "which was not asked";
  EXPECT_TRUE(inquiries.take(0, report_of(ask)));
  inquiries.lose(1);
  const auto got = answers.get();
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].node, 0U);
  EXPECT_FALSE(inquiries.take(0, {})) << "last words, which nobody has asked for";
}

TEST(NodeInquiries, end_with_their_cluster) {
  std::promise<void> asked;
  NodeInquiries inquiries([&](std::size_t, const AskProcesses&) -> Result<void> {
    asked.set_value();
    return {};
  });
  auto answers = std::async(std::launch::async,
                            [&] { return inquiries.ask({0}, Inquiry::metrics, 0, 3600s); });
  asked.get_future().wait();
  inquiries.stop();
  EXPECT_TRUE(answers.get().empty());
  EXPECT_TRUE(inquiries.ask({0}, Inquiry::metrics, 0, 3600s).empty());
}

}  // namespace
}  // namespace troupe
