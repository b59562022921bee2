#include "runtime/troupe/trace_json.hpp"

#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/thread_cpu_time.hpp"
#include "tests/support/trace_events.hpp"
#include "tests/support/trace_flows.hpp"

namespace troupe {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;

/// A driver's thread that calls an actor, which calls another one of another host meanwhile.
std::vector<ProcessTrace> two_hosts(std::int64_t ahead_ns) {
  ProcessTrace driver{{.node = "driver", .name = "driver", .pid = 1}, {}};
  driver.timeline = {{{.call = 1, .thread = 11, .name = 0, .made_ns = 1000},
                      {.call = 2, .thread = 11, .name = 0, .made_ns = 1400}},
                     {"Front"},
                     {},
                     {{11, "main"}}};
  ProcessTrace front{{.node = "node0", .process = 1, .name = "front", .pid = 2}, {}};
  front.timeline = {{{.call = 3, .actor = 7, .name = 1, .made_ns = 2500},
                     {.call = 1, .actor = 7, .queued_ns = 1500, .begin_ns = 2000, .end_ns = 9000},
                     {.call = 2, .actor = 7, .queued_ns = 1600, .begin_ns = 9000, .end_ns = 9500}},
                    {"Front.ask", "Back"},
                    {{7, "front \"a\""}},
                    {}};
  ProcessTrace back{{.node = "node1", .process = 2, .name = "back", .pid = 2, .ahead_ns = ahead_ns},
                    {}};
  back.timeline = {{{.call = 3,
                     .actor = 8,
                     .queued_ns = ahead_ns + 3000,
                     .begin_ns = ahead_ns + 3500,
                     .end_ns = ahead_ns + 4000}},
                   {"Back.answer"},
                   {{8, "back"}},
                   {}};
  return {driver, front, back};
}

TEST(TraceJson, spans_nest_and_each_flow_goes_from_a_span_to_a_later_one) {
  const json whole = json::parse(trace_json(two_hosts(5'000'000'000)));
  const json& events = whole["traceEvents"];
  EXPECT_THAT(tests::TraceEvents::mistakes_of(whole), IsEmpty());
  EXPECT_THAT(test::broken_flows(events), IsEmpty());
  EXPECT_EQ(test::count_of(events, "s"), 3U);
  const auto runs = test::spans_named(events, "Back.answer");
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_DOUBLE_EQ(runs[0]["ts"], 2.5) << "on the driver's clock, from its first call on";
  EXPECT_DOUBLE_EQ(runs[0]["dur"], 0.5);
  EXPECT_EQ(test::spans_named(events, "call Front.ask").size(), 2U);
  EXPECT_EQ(test::spans_named(events, "call Front.ask")[0]["dur"], 0.4) << "until the next one";
}

TEST(TraceJson, has_a_row_more_for_calls_that_an_actor_runs_at_once) {
  auto processes = two_hosts(0);
  processes[1].timeline.events[2].begin_ns = 3000;  // while the first one runs
  const json whole = json::parse(trace_json(processes));
  const json& events = whole["traceEvents"];
  EXPECT_THAT(tests::TraceEvents::mistakes_of(whole), IsEmpty());
  std::set<std::string> rows;
  for (const json& event : events) {
    if (event["name"] == "thread_name") rows.insert(event["args"]["name"]);
  }
  EXPECT_THAT(rows, ElementsAre("back", "front \"a\"", "front \"a\" (2)", "thread 11 (main)"));
}

TEST(TraceJson, begins_where_a_process_that_has_overwritten_events_begins) {
  auto processes = two_hosts(0);
  processes[2].timeline.has_all = false;
  const json events = json::parse(trace_json(processes))["traceEvents"];
  EXPECT_EQ(test::spans_named(events, "call Front.ask").size(), 0U);
  EXPECT_EQ(test::spans_named(events, "Back.answer").size(), 1U);
  EXPECT_EQ(test::count_of(events, "s"), 0U);
  EXPECT_THAT(test::broken_flows(events), IsEmpty());
}

/// Two calls of a coroutine that run in turn, and a call that one of them makes.
std::vector<ProcessTrace> coroutines() {
  ProcessTrace driver{{.node = "driver", .name = "driver", .pid = 1}, {}};
  driver.timeline = {{{.call = 1, .thread = 11, .name = 0, .made_ns = 1000},
                      {.call = 2, .thread = 11, .name = 0, .made_ns = 1100}},
                     {"Door"},
                     {},
                     {{11, "main"}}};
  ProcessTrace door{{.node = "node0", .process = 1, .name = "door", .pid = 2}, {}};
  door.timeline = {{{.call = 1, .actor = 7, .queued_ns = 1500, .begin_ns = 2000, .end_ns = 3000},
                    {.call = 2, .actor = 7, .queued_ns = 1600, .begin_ns = 3000, .end_ns = 4000},
                    {.call = 3, .actor = 7, .name = 1, .made_ns = 5500},
                    {.call = 1, .actor = 7, .begin_ns = 5000, .end_ns = 6000, .is_resumed = true},
                    {.call = 2, .actor = 7, .begin_ns = 7000, .end_ns = 8000, .is_resumed = true},
                    {.call = 1, .actor = 7, .begin_ns = 9000, .end_ns = 9500, .is_resumed = true}},
                   {"Door.open", "Bell"},
                   {{7, "door"}},
                   {}};
  return {driver, door};
}

TEST(TraceJson, shows_the_parts_of_coroutines_and_when_they_are_suspended) {
  const json whole = json::parse(trace_json(coroutines()));
  const json& events = whole["traceEvents"];
  EXPECT_THAT(tests::TraceEvents::mistakes_of(whole), IsEmpty());
  EXPECT_THAT(test::broken_flows(events), IsEmpty());
  EXPECT_EQ(test::spans_named(events, "Door.open").size(), 5U);
  EXPECT_EQ(test::count_of(events, "f"), 2U) << "flows go to the first parts";
  std::map<std::string, double> us;  // of each kind of wait and call, in all
  std::set<int> rows;
  for (const json& event : events) {
    if (event["ph"] == "X" && event["name"] == "Door.open") rows.insert(event["tid"].get<int>());
    if (event["ph"] != "b" && event["ph"] != "e") continue;
    const std::string wait = event["cat"].get<std::string>() + " " + event["id"].get<std::string>();
    us[wait] += (event["ph"] == "e" ? 1 : -1) * event["ts"].get<double>();
  }
  EXPECT_EQ(rows.size(), 1U) << "parts do not overlap";
  EXPECT_DOUBLE_EQ(us.at("suspended 1"), 2.0 + 3.0);
  EXPECT_DOUBLE_EQ(us.at("suspended 2"), 3.0);
  EXPECT_DOUBLE_EQ(us.at("queued 1"), 0.5);
  EXPECT_DOUBLE_EQ(us.at("queued 2"), 1.4);
}

TEST(TraceJson, takes_time_that_grows_with_the_calls_and_not_with_their_square) {
  auto processes = two_hosts(0);
  auto& events = processes[1].timeline.events;
  events.clear();
  constexpr std::int64_t count = 200000;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto call = static_cast<std::uint64_t>(i + 1);
    // The actor makes a call between two that it runs, as a thread of its own would.
    events.push_back({.call = call, .actor = 7, .begin_ns = 10 * i + 1, .end_ns = 10 * i + 5});
    events.push_back({.call = count + call, .actor = 7, .made_ns = 10 * i + 8});
  }
  const double begin = thread_cpu_s();
  const std::string trace = trace_json(processes);
  EXPECT_LT(thread_cpu_s() - begin, 5.0);
  EXPECT_GT(trace.size(), static_cast<std::size_t>(count) * 50);
}

TEST(TraceJson, of_nothing_is_a_trace_without_events) {
  EXPECT_EQ(json::parse(trace_json({}))["traceEvents"].size(), 0U);
}

}  // namespace
}  // namespace troupe
