#include "launcher/report/trace_json.hpp"

#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/trace_events.hpp"
#include "tests/unit/launcher/report/small_job.hpp"

namespace troupe::report_test {
namespace {

using nlohmann::json;

std::vector<json> spans_of(const json& trace) {
  std::vector<json> spans;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") spans.push_back(event);
  }
  return spans;
}

TEST(TraceJson, has_a_row_for_each_process_and_every_span) {
  const json trace = json::parse(trace_json(small_job()->processes(), 1'000'000'000));
  std::map<int, std::string> rows;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("name") == "process_name") {
      rows[event.at("pid")] = event.at("args").at("name");
    }
  }
  std::vector<std::string> names;
  for (const auto& [pid, name] : rows) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"launcher", "executor",
                                             "worker-0 (data 0, stage 0, context 0, tensor 0)",
                                             "worker-1 (data 0, stage 1, context 0, tensor 0)"}));
  const auto spans = spans_of(trace);
  ASSERT_EQ(spans.size(), 1U + 1 + 6 + 6);
  EXPECT_EQ(spans[0].at("name"), "read");
  EXPECT_DOUBLE_EQ(spans[0].at("ts"), 10'000);
  EXPECT_DOUBLE_EQ(spans[0].at("dur"), 2'000);
  EXPECT_EQ(spans[2].at("cat"), "step") << "around the next one";
  EXPECT_EQ(spans[3].at("cat"), "forward");
  EXPECT_EQ(spans[2].at("args").at("step"), 7);
}

using Mistakes = std::vector<std::string>;

TEST(TraceJson, keeps_to_the_trace_event_format) {
  const auto mistakes = [](const std::vector<ProcessTelemetry>& processes) {
    return tests::TraceEvents::mistakes_of(json::parse(trace_json(processes, 0)));
  };
  EXPECT_EQ(mistakes(small_job()->processes()), Mistakes());
  EXPECT_EQ(mistakes({}), Mistakes());
  ProcessTelemetry odd = worker(0);
  odd.process = "a\"b\\\n\xff";
  // Spans of equal length, and of none.
  odd.kept.spans = {{SpanKind::forward, 7, 100, 200},
                    {SpanKind::step, 7, 100, 200},
                    {SpanKind::reply, 7, 200, 200}};
  EXPECT_EQ(mistakes({odd}), Mistakes());
}

TEST(TraceEvents, finds_what_is_wrong) {
  const std::string name =
      R"({"name":"process_name","ph":"M","pid":1,"tid":1,"args":{"name":"p"}},)"
      R"({"name":"thread_name","ph":"M","pid":1,"tid":1,"args":{"name":"t"}},)";
  const auto mistakes = [](const std::string& events) {
    return tests::TraceEvents::mistakes_of(json::parse("{\"traceEvents\":[" + events + "]}"));
  };
  const auto span = [](const std::string& times) {
    return R"({"name":"a","cat":"c","ph":"X","pid":1,"tid":1,)" + times + "}";
  };
  EXPECT_EQ(mistakes(name + span(R"("ts":1,"dur":2)")), Mistakes());
  for (const std::string& wrong : {
           name + span(R"("ts":-1,"dur":2)"),
           name + span(R"("ts":1,"dur":null)"),
           name + span(R"("ts":"1","dur":2)"),
           name + span(R"("ts":1,"dur":2)") + "," + span(R"("ts":2,"dur":2)"),
           name + span(R"("ts":9,"dur":1)") + "," + span(R"("ts":2,"dur":1)"),
           span(R"("ts":1,"dur":2)"),
           name + name.substr(0, name.size() - 1),
           std::string(R"({"name":"name","ph":"M","pid":1,"tid":1,"args":{"name":"p"}})"),
           std::string(R"({"name":"process_name","ph":"M","pid":1,"tid":1,"args":{}})"),
           std::string(R"({"name":"a","ph":"Q","pid":1,"tid":1})"),
           std::string(R"({"name":"a","ph":"X","ts":1,"dur":1})"),
           std::string("[]"),
       }) {
    EXPECT_NE(mistakes(wrong), Mistakes()) << wrong;
  }
  EXPECT_NE(tests::TraceEvents::mistakes_of(json::array()), Mistakes());
}

TEST(TraceJson, begins_all_rows_where_one_has_lost_its_older_spans) {
  auto processes = small_job()->processes();
  auto& worker = processes.back();
  worker.kept.all = false;
  worker.kept.spans.erase(worker.kept.spans.begin(), worker.kept.spans.begin() + 2);
  const auto spans = spans_of(json::parse(trace_json(processes, 0)));
  ASSERT_EQ(spans.size(), 3U + 3)
      << "of both ranks' last two steps, but for one that began earlier";
  for (const auto& span : spans) EXPECT_GE(span.at("ts").get<double>(), 1'111'000);
}

TEST(TraceJson, moves_the_spans_of_another_machine_to_this_clock) {
  ProcessTelemetry far = worker(0);
  const auto spans = spans_of(json::parse(trace_json({far, far}, 0, {0, -1'000'000'000})));
  ASSERT_EQ(spans.size(), 12U);
  EXPECT_DOUBLE_EQ(spans[0].at("ts").get<double>() - spans[6].at("ts").get<double>(), 1e6);
}

TEST(TraceJson, is_json_without_processes_and_with_odd_names) {
  EXPECT_TRUE(json::parse(trace_json({}, 0)).at("traceEvents").empty());
  ProcessTelemetry odd = worker(0);
  odd.process = "a\"b\\\n\xff";
  EXPECT_TRUE(json::accept(trace_json({odd}, 0)));
}

}  // namespace
}  // namespace troupe::report_test
