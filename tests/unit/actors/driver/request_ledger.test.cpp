#include "actors/driver/request_ledger.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Ids = std::vector<std::int32_t>;

constexpr RequestLedger::Clock::time_point start{};

Request request_of(std::uint64_t id, std::size_t prompt_bytes = 3) {
  Request request;
  request.id = id;
  request.prompt = std::string(prompt_bytes, 'a');
  return request;
}

SequenceUpdate update_of(std::uint64_t request, std::int32_t sequence, Ids tokens) {
  SequenceUpdate update;
  update.request = request;
  update.sequence = sequence;
  update.tokens = std::move(tokens);
  return update;
}

EngineReport answers_to(const std::vector<std::uint64_t>& requests) {
  EngineReport report;
  for (const std::uint64_t id : requests) report.completions.emplace_back().id = id;
  return report;
}

EngineReport progress_of(std::vector<SequenceUpdate> updates) {
  EngineReport report;
  report.progress = std::move(updates);
  return report;
}

TEST(RequestLedger, gives_what_is_not_answered_with_its_progress_in_the_order_of_ids) {
  RequestLedger ledger;
  ledger.add(0, {request_of(3), request_of(1)}, start);
  ledger.add(1, {request_of(2)}, start);
  auto report = progress_of({update_of(1, 0, {7}), update_of(3, 0, {5})});
  ledger.take(report, true);
  report = progress_of({update_of(1, 0, {8}), update_of(1, 1, {9})});
  ledger.take(report, true);
  report = answers_to({3});
  ledger.take(report, true);
  EXPECT_EQ(report.completions.size(), 1U);
  ledger.take_back_all();
  const auto left = ledger.take_due(start);
  ASSERT_EQ(left.size(), 2U);
  EXPECT_EQ(left[0].replica, 0);
  ASSERT_EQ(left[0].requests.size(), 1U);
  EXPECT_EQ(left[0].requests[0].request.id, 1U);
  ASSERT_EQ(left[0].requests[0].progress.size(), 2U);
  EXPECT_EQ(left[0].requests[0].progress[0].tokens, (Ids{7, 8}));
  EXPECT_EQ(left[0].requests[0].progress[1].tokens, Ids{9});
  EXPECT_EQ(left[1].replica, 1);
  EXPECT_EQ(left[1].requests.at(0).request.id, 2U);
}

TEST(RequestLedger, passes_one_answer_to_each_request) {
  RequestLedger ledger;
  ledger.add(0, {request_of(1), request_of(2)}, start);
  auto report = answers_to({1});
  report.dropped = {2};
  ledger.take(report, true);
  EXPECT_EQ(report.completions.size(), 1U);
  EXPECT_EQ(report.dropped.size(), 1U);
  report = answers_to({1, 2});
  report.dropped = {2};
  ledger.take(report, true);
  EXPECT_TRUE(report.completions.empty());
  EXPECT_TRUE(report.dropped.empty());
  EXPECT_EQ(ledger.size(), 0U);
}

TEST(RequestLedger, ignores_the_progress_of_an_executor_that_has_been_replaced) {
  RequestLedger ledger;
  ledger.add(0, {request_of(1)}, start);
  auto report = progress_of({update_of(1, 0, {7})});
  ledger.take(report, false);
  ledger.take_back_all();
  EXPECT_TRUE(ledger.take_due(start).at(0).requests.at(0).progress.empty());
}

TEST(RequestLedger, lets_a_request_begin_anew_whose_progress_is_more_than_is_kept) {
  RequestLedger ledger;
  ledger.add(0, {request_of(1), request_of(2)}, start);
  auto report = progress_of({update_of(1, 0, Ids(std::size_t{9} << 20)), update_of(2, 0, {4})});
  ledger.take(report, true);
  report = progress_of({update_of(1, 0, {7})});  // without what came before it says nothing
  ledger.take(report, true);
  ledger.take_back_all();
  const auto left = ledger.take_due(start);
  EXPECT_TRUE(left.at(0).requests.at(0).progress.empty());
  EXPECT_FALSE(left.at(0).requests.at(1).progress.empty());
}

TEST(RequestLedger, bounds_the_progress_of_all_requests_and_lets_that_with_the_most_begin_anew) {
  constexpr std::size_t room = std::size_t{1} << 20;
  RequestLedger ledger(room);
  ledger.add(0, {request_of(1), request_of(2), request_of(3)}, start);
  const std::size_t empty = ledger.bytes();
  for (int i = 0; i < 100; ++i) {
    auto report = progress_of({update_of(1, 0, Ids(2000)), update_of(2, 0, Ids(1000))});
    ledger.take(report, true);
    ASSERT_LE(ledger.bytes(), room);
  }
  EXPECT_GT(ledger.used_share(), 0.3);
  ledger.take_back_all();
  const auto left = ledger.take_due(start);
  EXPECT_TRUE(left.at(0).requests.at(0).progress.empty()) << "it had the most";
  EXPECT_EQ(left.at(0).requests.at(1).progress.at(0).tokens.size(), 100'000U);
  auto report = answers_to({1, 2});
  ledger.take(report, true);
  EXPECT_LT(ledger.bytes(), empty);
  report = answers_to({3});
  ledger.take(report, true);
  EXPECT_EQ(ledger.bytes(), 0U);
}

TEST(RequestLedger, cuts_what_it_gives_into_calls_of_a_few_megabytes) {
  RequestLedger ledger;
  ledger.add(0, {request_of(1, 9 << 20), request_of(2), request_of(3, 9 << 20)}, start);
  ledger.take_back_all();
  const auto left = ledger.take_due(start);
  ASSERT_EQ(left.size(), 2U);
  EXPECT_EQ(left[0].requests.size(), 1U);
  EXPECT_EQ(left[1].requests.size(), 2U);
}

TEST(RequestLedger, takes_the_time_that_has_passed_from_deadlines) {
  RequestLedger ledger;
  Request hurried = request_of(1);
  hurried.deadline_ms = 1000;
  ledger.add(0, {hurried, request_of(2)}, start);
  ledger.take_back_all();
  const auto soon = ledger.take_due(start + 300ms);
  EXPECT_EQ(soon[0].requests[0].request.deadline_ms, 700);
  EXPECT_EQ(soon[0].requests[1].request.deadline_ms, 0) << "it has none";
  ledger.take_back_all();
  EXPECT_EQ(ledger.take_due(start + 5s)[0].requests[0].request.deadline_ms, 1);
}

std::vector<std::uint64_t> ids_of(const std::vector<RequestLedger::Submission>& submissions) {
  std::vector<std::uint64_t> ids;
  for (const auto& submission : submissions) {
    for (const auto& submitted : submission.requests) ids.push_back(submitted.request.id);
  }
  return ids;
}

using RequestIds = std::vector<std::uint64_t>;

/// A crash in epoch 1 that these were under way in; `reach` of each.
RequestLedger::CrashVerdict crash(RequestLedger& ledger, const RequestIds& requests,
                                  std::optional<std::int64_t> reach = std::nullopt) {
  std::vector<UnderWay> under_way;
  for (const std::uint64_t id : requests) under_way.push_back({.request = id, .reach = reach});
  return ledger.note_crash(under_way, 1);
}

/// The progress of a request in that epoch, by so many tokens.
void progress(RequestLedger& ledger, std::uint64_t request, std::int32_t tokens,
              std::uint32_t epoch) {
  auto report = progress_of({update_of(request, 0, Ids(static_cast<std::size_t>(tokens)))});
  report.epoch = epoch;
  ledger.take(report, true);
}

TEST(RequestLedger, gives_nothing_twice) {
  RequestLedger ledger;
  ledger.add(0, {request_of(1)}, start);
  EXPECT_TRUE(ledger.take_due(start).empty()) << "the executor has it";
  ledger.take_back_all();
  EXPECT_EQ(ids_of(ledger.take_due(start)), RequestIds{1});
  EXPECT_TRUE(ledger.take_due(start).empty());
}

TEST(RequestLedger, gives_suspects_one_at_a_time_and_gives_up_the_one_that_is_there_again) {
  RequestLedger ledger;
  ledger.add(0, {request_of(1), request_of(2), request_of(3), request_of(4)}, start);
  EXPECT_TRUE(crash(ledger, {1, 2, 3}).taken_back.empty());
  auto verdict = crash(ledger, {1, 2, 4});
  EXPECT_EQ(verdict.taken_back, (RequestIds{1, 2}));
  EXPECT_TRUE(verdict.given_up.empty());
  EXPECT_EQ(ids_of(ledger.take_due(start)), RequestIds{1});
  EXPECT_TRUE(ledger.take_due(start).empty()) << "1 is not answered yet";
  auto report = answers_to({1});
  ledger.take(report, true);
  EXPECT_EQ(ids_of(ledger.take_due(start)), RequestIds{2});
  verdict = crash(ledger, {2, 3, 4});
  EXPECT_EQ(verdict.given_up, RequestIds{2});
  ASSERT_EQ(verdict.prompt_hashes.size(), 1U);
  EXPECT_EQ(verdict.prompt_hashes[0].size(), 32U);
}

TEST(RequestLedger, acquits_the_other_suspects_once_one_is_given_up) {
  RequestLedger ledger;
  ledger.add(0, {request_of(1), request_of(2), request_of(3)}, start);
  (void)crash(ledger, {1, 2, 3});
  (void)crash(ledger, {1, 2, 3});
  EXPECT_EQ(ids_of(ledger.take_due(start)), RequestIds{1});
  EXPECT_EQ(crash(ledger, {1}).given_up, RequestIds{1});
  EXPECT_EQ(ids_of(ledger.take_due(start)), (RequestIds{2, 3})) << "all but the one given up";
  auto report = answers_to({1});
  ledger.take(report, true);
  EXPECT_EQ(report.completions.size(), 1U) << "its error";
}

TEST(RequestLedger, acquits_what_has_got_further_than_it_was_in_a_crash) {
  RequestLedger ledger;
  ledger.add(0, {request_of(1), request_of(2)}, start);
  progress(ledger, 1, 10, 1);
  (void)crash(ledger, {1, 2}, 12);
  progress(ledger, 1, 2, 2);
  progress(ledger, 2, 13, 2);
  const auto second = crash(ledger, {1, 2}, 12);
  EXPECT_EQ(second.taken_back, RequestIds{1}) << "2 is further than it was";
  EXPECT_EQ(second.suspects, 1U);
  EXPECT_EQ(crash(ledger, {1}, 12).given_up, RequestIds{1});
}

TEST(RequestLedger, gives_the_next_suspect_once_the_one_before_has_got_further) {
  RequestLedger ledger;
  ledger.add(0, {request_of(1), request_of(2), request_of(3)}, start);
  for (const std::uint64_t id : {1, 2, 3}) progress(ledger, id, 5, 1);
  (void)crash(ledger, {1, 2, 3}, 6);
  EXPECT_EQ(crash(ledger, {1, 2, 3}, 6).suspects, 3U);
  EXPECT_EQ(ids_of(ledger.take_due(start)), RequestIds{1});
  progress(ledger, 1, 1, 1);  // a late report of the epoch that has ended
  progress(ledger, 1, 1, 2);
  EXPECT_TRUE(ledger.take_due(start).empty()) << "it is where it was";
  progress(ledger, 1, 1, 2);
  const auto next = ledger.take_due(start);
  ASSERT_EQ(ids_of(next), RequestIds{2});
  EXPECT_EQ(next[0].requests[0].progress.at(0).tokens.size(), 5U);
  const auto third = crash(ledger, {1, 2}, 6);
  EXPECT_EQ(third.given_up, RequestIds{2}) << "1 has got further, and its crashes count no more";
  EXPECT_EQ(ids_of(ledger.take_due(start)), RequestIds{3});
}

TEST(RequestLedger, does_not_acquit_by_progress_what_a_dead_executor_does_not_tell_of) {
  RequestLedger ledger;
  ledger.add(0, {request_of(1)}, start);
  (void)crash(ledger, {1}, 6);
  (void)ledger.note_crash(ledger.given(), 2);
  ledger.take_back_all();
  EXPECT_EQ(ids_of(ledger.take_due(start)), RequestIds{1});
  progress(ledger, 1, 100, 3);
  EXPECT_EQ(crash(ledger, {1}, 100).given_up, RequestIds{1});
}

TEST(RequestLedger, keeps_what_a_suspect_had_generated) {
  RequestLedger ledger;
  ledger.add(0, {request_of(1)}, start);
  auto report = progress_of({update_of(1, 0, {7, 8})});
  ledger.take(report, true);
  (void)crash(ledger, {1});
  (void)crash(ledger, {1});
  report = progress_of({update_of(1, 0, {9})});  // it was under way
  ledger.take(report, true);
  const auto again = ledger.take_due(start);
  EXPECT_EQ(again.at(0).requests.at(0).progress.at(0).tokens, (Ids{7, 8}));
}

TEST(RequestLedger, hands_its_requests_over_with_their_progress_their_crashes_and_their_age) {
  RequestLedger from;
  Request timed = request_of(1);
  timed.deadline_ms = 5000;
  from.add(0, {timed, request_of(2)}, start);
  auto report = progress_of({update_of(1, 0, {7, 8})});
  from.take(report, true);
  const RequestIds both{1, 2};
  (void)crash(from, both);

  RequestLedger to;
  for (auto& request : from.release_all()) to.adopt(3, std::move(request));
  EXPECT_EQ(from.size(), 0U);
  EXPECT_EQ(from.bytes(), 0U);
  EXPECT_TRUE(from.take_due(start).empty());
  report = answers_to({1});
  from.take(report, true);
  EXPECT_TRUE(report.completions.empty()) << "a late answer of the former executor";

  const auto due = to.take_due(start + 2s);
  ASSERT_EQ(due.size(), 1U);
  EXPECT_EQ(due[0].replica, 3);
  ASSERT_EQ(due[0].requests.size(), 2U);
  ASSERT_EQ(due[0].requests[0].progress.size(), 1U);
  EXPECT_EQ(due[0].requests[0].progress[0].tokens, (Ids{7, 8}));
  EXPECT_EQ(due[0].requests[0].request.deadline_ms, 3000);
  EXPECT_TRUE(due[0].requests[1].progress.empty());
  EXPECT_TRUE(to.take_due(start).empty()) << "its executor has them";
  EXPECT_EQ(crash(to, both).taken_back.size(), 2U) << "their second crash";

  report = progress_of({update_of(1, 0, {9})});
  to.take_back_all();
  to.take(report, true);
  const auto again = to.take_due(start);
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].requests[0].progress[0].tokens, (Ids{7, 8, 9}));
  report = answers_to({1, 2});
  to.take(report, true);
  EXPECT_EQ(report.completions.size(), 2U);
  EXPECT_EQ(to.bytes(), 0U);
}

EngineReport counting(std::uint64_t tokens, EngineReport report = {}) {
  report.stats.output_tokens = tokens;
  return report;
}

EngineReport answer_of(std::uint64_t request, Ids tokens) {
  EngineReport report;
  Completion& done = report.completions.emplace_back();
  done.id = request;
  done.choices.emplace_back().token_ids = std::move(tokens);
  return report;
}

TEST(RequestLedger, knows_how_many_counted_tokens_were_lost_with_their_executor) {
  RequestLedger ledger;
  ledger.add(0, {request_of(1), request_of(2)}, start);
  auto report = counting(5, progress_of({update_of(1, 0, {1, 2}), update_of(2, 0, {3})}));
  ledger.take(report, true);
  EXPECT_EQ(ledger.take_unsaved(), 0U) << "they may still come";
  report = counting(9, answer_of(1, {1, 2, 4, 5}));
  ledger.take(report, true);
  ledger.take_back_all();
  EXPECT_EQ(ledger.take_unsaved(), 4U) << "9, of which 4 are in an answer and 1 in progress";
  EXPECT_EQ(ledger.take_unsaved(), 0U);
  // The next executor counts from 0, and goes on after the token that request 2 has.
  ledger.take_due(start);
  report = counting(3, answer_of(2, {3, 6, 7, 8}));
  ledger.take(report, true);
  ledger.take_back_all();
  EXPECT_EQ(ledger.take_unsaved(), 0U);
}

TEST(RequestLedger, counts_the_tokens_of_requests_that_an_executor_is_made_to_forget) {
  RequestLedger ledger;
  ledger.add(0, {request_of(1)}, start);
  auto report = counting(2, progress_of({update_of(1, 0, {1, 2})}));
  ledger.take(report, true);
  for (int crash = 1; crash < RequestLedger::max_crashes; ++crash) {
    ledger.note_crash(std::vector<UnderWay>{{.request = 1, .reach = 9}}, 1);
  }
  report = counting(5);
  report.resumed = FirstStep{.epoch = 2, .lost = {}, .forgotten_tokens = 5};
  ledger.take(report, true);
  EXPECT_EQ(ledger.take_unsaved(), 3U) << "5, of which 2 are in its progress";
  ledger.take_due(start);
  report = counting(8, answer_of(1, {1, 2, 3, 4, 5}));
  ledger.take(report, true);
  ledger.take_back_all();
  EXPECT_EQ(ledger.take_unsaved(), 0U);
}

TEST(RequestLedger, counts_the_tokens_that_go_to_another_domain_without_them) {
  RequestLedger ledger, other;
  ledger.add(0, {request_of(1)}, start);
  auto report = counting(6, progress_of({update_of(1, 0, {1, 2})}));
  ledger.take(report, true);
  auto released = ledger.release_all();
  EXPECT_EQ(ledger.take_unsaved(), 4U);
  other.adopt(0, std::move(released.at(0)));
  other.take_due(start);
  report = counting(1, answer_of(1, {1, 2, 3}));
  other.take(report, true);
  other.take_back_all();
  EXPECT_EQ(other.take_unsaved(), 0U);
}

}  // namespace
}  // namespace troupe
